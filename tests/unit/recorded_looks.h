/* Recorded looks of tests/monitor/states, for tests of pictures, JSON and metrics. */
#ifndef BRIM_TESTS_RECORDED_LOOKS_H
#define BRIM_TESTS_RECORDED_LOOKS_H
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "monitor/look.h"

static inline brim_look *open_look(const char *state)
{
  char path[512];
  brim_look *look = test_calloc(1, sizeof *look);
  snprintf(path, sizeof path, "%s/monitor/states/%s.json", BRIM_TESTS_DIR, state);
  json_t *root = json_load_file(path, 0, NULL);
  assert_non_null(root);
  if (brim_look_add_json(root, look) != BRIM_OK) fail_msg("%s: %s", state, brim_error_text());
  json_decref(root);
  return look;
}

static inline void close_look(brim_look *look)
{
  brim_look_release(look);
  test_free(look);
}
#endif
