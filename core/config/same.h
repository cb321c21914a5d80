/* Are two written values the same, once they are parsed by their type? `0x10` and `16` are. */
#ifndef BRIM_CONFIG_SAME_H
#define BRIM_CONFIG_SAME_H
#include "brim/plugin.h"
#include "param/yaml.h"

/* Room for a value of any type. */
typedef union brim_any_value {
  bool flag;
  int64_t integer;
  double number;
  uint64_t size;
  const char *text;
  int32_t choice;
  brim_list list;
  brim_shares shares;
  brim_names names;
} brim_any_value;

/* False also if one of them is no value of the row's type. */
bool brim_value_same(const brim_param *row, const brim_yaml *a, const brim_yaml *b, brim_arena *arena);
#endif
