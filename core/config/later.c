/* The table of what is declared and not available, and how a value is judged: parsed by its type, so that `0x0` and
 * `0` are the same, and compared as a parsed value. */
#include "config/later.h"

#include <string.h>

#include "config/value.h"

/* A key without a field. */
#define LATER(section, T, key, def, range, neutral, help)                                                              \
  {                                                                                                                    \
    section, {key, BRIM_##T, 0, 0, def, range, help}, neutral                                                          \
  }

const brim_later_key brim_later_keys[] = {
    LATER("", ENUM, "precision", "fp32", "fp32|bf16|fp16", NULL, "numbers that training computes in"),
    LATER("memory", ENUM, "recompute", "none", "none|blocks|full|auto", NULL,
          "what the backward pass computes again rather than keeps"),
    {NULL, {0}, NULL},
};

const brim_later_value brim_later_values[] = {
    {"training.batch_size", "auto"},
    {NULL, NULL},
};

/* Room for a value of any type; zero everywhere before it is filled, so that values compare by their bytes. */
typedef union any {
  bool flag;
  int64_t integer;
  double number;
  uint64_t size;
  const char *text;
  int32_t choice;
  brim_list list;
} any;

static bool same_value(uint32_t type, const any *a, const any *b)
{
  switch (type) {
  case BRIM_STR:
  case BRIM_PATH:
    return strcmp(a->text, b->text) == 0;
  case BRIM_F64:
  case BRIM_SECONDS:
    return a->number == b->number;
  case BRIM_LIST:
    if (a->list.count != b->list.count) return false;
    for (size_t i = 0; i < a->list.count; i++)
      if (a->list.item[i] != b->list.item[i]) return false;
    return true;
  default:
    return memcmp(a, b, sizeof *a) == 0;
  }
}

/* Is the value the same as `text` would be? */
static bool is_neutral(const brim_later_key *key, const any *value, const char *text, brim_arena *arena)
{
  brim_param row = key->param;
  row.def = text;
  const brim_yaml *node = brim_value_default(&row, arena);
  any other;
  memset(&other, 0, sizeof other);
  brim_text problem = {0};
  const bool parsed = node && brim_value_parse(&row, node, &other, arena, &problem) == BRIM_OK;
  brim_text_release(&problem);
  return parsed && same_value(row.type, value, &other);
}

brim_status brim_later_check(const brim_later_key *key, const brim_yaml *node, brim_arena *arena, brim_text *problem)
{
  any value;
  memset(&value, 0, sizeof value);
  BRIM_TRY(brim_value_parse(&key->param, node, &value, arena, problem));
  const char *text = key->neutral ? key->neutral : key->param.def;
  if (key->neutral && strcmp(text, "*") == 0) return BRIM_OK;
  for (;;) {
    const size_t length = key->neutral ? strcspn(text, "|") : strlen(text);
    if (is_neutral(key, &value, brim_arena_string_n(arena, text, length), arena)) return BRIM_OK;
    if (text[length] == '\0') return BRIM_ENOTSUP;
    text += length + 1;
  }
}

bool brim_later_is_value(const char *path, const brim_yaml *node)
{
  for (const brim_later_value *v = brim_later_values; v->path; v++)
    if (strcmp(v->path, path) == 0 && node->kind == BRIM_YAML_SCALAR && !node->quoted &&
        strcmp(v->value, node->scalar) == 0)
      return true;
  return false;
}
