/* Comparing values by their type. */
#include "param/value.h"

#include <string.h>

static bool same_shares(const brim_shares *a, const brim_shares *b)
{
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++) {
    const brim_share *x = &a->item[i], *y = &b->item[i];
    if (strcmp(x->of, y->of) != 0 || strcmp(x->who, y->who) != 0) return false;
    if (x->fraction != y->fraction || x->bytes != y->bytes) return false;
  }
  return true;
}

static bool same_parsed(uint32_t type, const brim_any_value *a, const brim_any_value *b)
{
  switch (type) {
  case BRIM_STR:
  case BRIM_PATH:
    return strcmp(a->text, b->text) == 0;
  case BRIM_F64:
  case BRIM_SECONDS:
    return a->number == b->number;
  case BRIM_LIST: {
    if (a->list.count != b->list.count) return false;
    for (size_t i = 0; i < a->list.count; i++)
      if (a->list.item[i] != b->list.item[i]) return false;
    return true;
  }
  case BRIM_SHARES:
    return same_shares(&a->shares, &b->shares);
  case BRIM_NAMES: {
    bool same = a->names.count == b->names.count;
    for (size_t i = 0; same && i < a->names.count; i++) same = strcmp(a->names.item[i], b->names.item[i]) == 0;
    return same;
  }
  case BRIM_BOOL:
    return a->flag == b->flag;
  case BRIM_ENUM:
    return a->choice == b->choice;
  case BRIM_BYTES:
  case BRIM_SET:
    return a->size == b->size;
  default:
    return a->integer == b->integer;
  }
}

static bool read_value(const brim_param *row, const brim_yaml *node, brim_any_value *out, brim_arena *arena)
{
  brim_param at_zero = *row; /* `row` has the offset in its own struct; here the field is at 0 */
  brim_text problem = {0};
  at_zero.offset = 0;
  memset(out, 0, sizeof *out);
  const bool parsed = brim_value_parse(&at_zero, node, out, arena, &problem) == BRIM_OK;
  brim_text_release(&problem);
  return parsed;
}

bool brim_value_same(const brim_param *row, const brim_yaml *a, const brim_yaml *b, brim_arena *arena)
{
  brim_any_value first, second;
  return read_value(row, a, &first, arena) && read_value(row, b, &second, arena) &&
         same_parsed(row->type, &first, &second);
}
