/* Fuzzes the expressions of `brim runs --where`: each parses, and then has an answer for any run, or is refused with a
 * place inside the expression. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/where.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_where: %s: %s\n", what, brim_error_text());
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const brim_where_value values[] = {
      {.number = NAN},
      {.has = true, .text = "vit", .number = NAN},
      {.has = true, .text = "0.5", .number = 0.5},
      {.has = true, .number = 2},
      {.has = true, .is_list = true, .text = "paper,final,,", .number = NAN},
  };
  brim_arena arena = {0};
  brim_where where;
  const char *text = brim_arena_string_n(&arena, (const char *)data, size);
  if (brim_where_parse(&arena, text, &where) == BRIM_OK) {
    brim_where_value value[BRIM_WHERE_KEYS_MAX];
    check(where.keys > 0 && where.keys <= BRIM_WHERE_KEYS_MAX, "the keys");
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
      for (size_t i = 0; i < where.keys; i++) {
        check(where.at[i] < strlen(text) && where.key[i][0], "a key's place");
        value[i] = values[(v + i) % (sizeof values / sizeof values[0])];
      }
      (void)brim_where_matches(&where, value);
    }
  } else {
    check(strncmp(brim_error_text(), "--where", strlen("--where")) == 0, "the place is missing");
  }
  brim_arena_release(&arena);
  return 0;
}
