/* Fuzzes overrides: every word is parsed or refused with an error; its value, set in a tree, prints as YAML that reads
 * back; every type accepts it or gives an error; and so does interpolation. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/interpolate.h"
#include "config/override.h"
#include "param/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct all {
  bool flag;
  int64_t count;
  double number;
  uint64_t size_mb;
  double seconds;
  const char *text;
  int32_t choice;
  brim_list list;
  int64_t count_or_auto;
  brim_shares shares;
} all;
static const brim_param rows[] = {BRIM_PARAM(BOOL, all, flag, "true", NULL, ""),
                                  BRIM_PARAM(I64, all, count, "1", "[-5,512]", ""),
                                  BRIM_PARAM(F64, all, number, "1", "(0,1e300]", ""),
                                  BRIM_PARAM(BYTES, all, size_mb, "1", NULL, ""),
                                  BRIM_PARAM(SECONDS, all, seconds, "1", "[0,inf)", ""),
                                  BRIM_PARAM(STR, all, text, "", NULL, ""),
                                  BRIM_PARAM(ENUM, all, choice, "a", "a|b", ""),
                                  BRIM_PARAM(LIST, all, list, "[]", "[-1e9,1e9]", ""),
                                  BRIM_PARAM(I64, all, count_or_auto, "auto", "auto|[1,64]", ""),
                                  BRIM_PARAM(SHARES, all, shares, "{}", NULL, ""),
                                  BRIM_PARAMS_END};

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_override: %s: %s\n", what, brim_error_text());
  abort();
}

static void check_types(brim_arena *arena, const brim_yaml *value)
{
  brim_text problem = {0};
  for (const brim_param *row = rows; row->key; row++) {
    all out = {0};
    brim_text_clear(&problem);
    const brim_status status = brim_value_parse(row, value, &out, arena, &problem);
    check((status == BRIM_OK) == (problem.length == 0), "a refusal without a text, or a text without a refusal");
    if (status == BRIM_OK && row->offset == offsetof(all, count))
      check(out.count >= -5 && out.count <= 512, "out of range");
    if (status == BRIM_OK && row->offset == offsetof(all, count_or_auto))
      check(out.count_or_auto == -1 || (out.count_or_auto >= 1 && out.count_or_auto <= 64), "out of range");
    for (size_t i = 0; i < out.shares.count; i++) {
      const brim_share *share = &out.shares.item[i];
      check(share->fraction > 0 ? share->fraction <= 1 && share->bytes == 0 : share->bytes > 0, "a share of nothing");
    }
    if (status == BRIM_OK && row->type == BRIM_F64) check(out.number > 0 && out.number <= 1e300, "out of range");
  }
  brim_text_release(&problem);
}

static void check_printing(brim_arena *arena, const brim_override *o)
{
  brim_yaml *root = brim_yaml_map(arena, o->origin), *again = NULL;
  brim_yaml_set(arena, root, "key", o->value);
  brim_text text = {0};
  brim_yaml_print(root, &text, true);
  const bool fits = text.length <= BRIM_YAML_BYTES_MAX;
  check(!fits || brim_yaml_parse(arena, text.s, text.length, "again", &again) == BRIM_OK, "it does not print as YAML");
  if (fits && o->value->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(o->value))
    check(strcmp(brim_yaml_get(again, "key")->scalar, o->value->scalar) == 0, "it prints as another value");
  brim_text_release(&text);
}

/* True if a part of the value is missing because its interpolation failed. */
static bool has_failed(const brim_yaml *node)
{
  bool failed = node->interpolation == BRIM_YAML_FAILED;
  for (size_t i = 0; i < node->count; i++) failed = has_failed(node->item[i]) || failed;
  return failed;
}

/* The value, in a tree with others that it may refer to, is interpolated or refused with an error; once interpolated,
 * and written with escapes, interpolation leaves it unchanged. */
static void check_interpolation(brim_arena *arena, const brim_override *o)
{
  brim_composition c = {.arena = arena, .problems = {.arena = arena}};
  brim_yaml *first = brim_yaml_clone(arena, o->value);
  check(brim_yaml_parse_value(arena, "{a: 1, b: {c: [x, '${...a}'], d: '${.c.1}'}, a1: '${b}'}", o->origin, &c.root) ==
            BRIM_OK,
        "the tree");
  brim_yaml_set(arena, c.root, "key", first);
  brim_interpolate(&c, &(brim_schema){0});
  check(has_failed(first) == (c.problems.count > 0), "a refusal without a text, or a text without a refusal");
  if (has_failed(first) || first->kind != BRIM_YAML_SCALAR || !strstr(first->scalar, "${")) return;
  const char *escaped = brim_interpolation_escape(arena, first->scalar);
  brim_composition again = {.arena = arena, .problems = {.arena = arena}};
  again.root = brim_yaml_map(arena, o->origin);
  brim_yaml_set(arena, again.root, "key", brim_yaml_scalar(arena, escaped, o->origin));
  brim_interpolate(&again, &(brim_schema){0});
  check(again.problems.count == 0 && strcmp(again.root->item[0]->scalar, first->scalar) == 0, "escapes differ");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_override o;
  const char *word = brim_arena_string_n(&arena, (const char *)data, size);
  if (brim_override_parse(&arena, word, 1, &problems, &o)) {
    check(problems.count == 0, "taken, with a problem");
    check(o.key && o.key[0] != '\0' && o.origin.text != NULL, "no key");
    check(o.value || o.mode == BRIM_OVERRIDE_REMOVE, "no value");
    if (o.value) check_types(&arena, o.value);
    if (o.value) check_printing(&arena, &o);
    if (o.value) check_interpolation(&arena, &o);
  } else {
    check(problems.count > 0 && problems.text[0][0] != '\0', "refused without a text");
  }
  brim_arena_release(&arena);
  return 0;
}
