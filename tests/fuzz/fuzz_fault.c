/* Fuzzes BRIM_FAULT: every text is accepted, and calls can be checked against it, or refused with an error. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define CALLS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_fault: %s\n", what);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char *const points[] = {BRIM_FAULT_ALLOC, BRIM_FAULT_PLACE, BRIM_FAULT_LIB, BRIM_FAULT_BEGIN};
  char *text = malloc(size + 1);
  check(text != NULL, "no memory");
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  const brim_status status = brim_fault_open(text, NULL);
  check(status == BRIM_OK || status == BRIM_ECONFIG, "another status");
  if (status != BRIM_OK)
    check(strncmp(brim_error_text(), "BRIM_FAULT, character ", 22) == 0, "refused without a place");
  int failed = 0;
  for (int64_t step = 0; step < CALLS; step++) {
    if (step > 0) brim_fault_step(step);
    for (int i = 0; i < 4 * CALLS; i++) failed += brim_fault_hit(points[i % 4], i % 2 ? "conv" : NULL);
  }
  check((status == BRIM_OK && text[0]) || failed == 0, "a call fails without a fault");
  brim_fault_close();
  free(text);
  return 0;
}
