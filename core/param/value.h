/* Parses values by their declared type: from a row of a parameter table and a text or YAML node to the field of a
 * struct. */
#ifndef BRIM_PARAM_VALUE_H
#define BRIM_PARAM_VALUE_H
#include "brim/plugin.h"
#include "param/yaml.h"

/* Parses `node` by the type and range of `row` and stores it in the field of `params`. Strings and
 * lists live in `arena`. On ECONFIG `problem` describes the error without the key and the position:
 * "must be in [1,512], got 0". */
brim_status brim_value_parse(const brim_param *row, const brim_yaml *node, void *params, brim_arena *arena,
                             brim_text *problem);
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

/* Whether two values are equal after parsing by the row's type: 0x10 equals 16. False if one of them is not valid. */
bool brim_value_same(const brim_param *row, const brim_yaml *a, const brim_yaml *b, brim_arena *arena);
/* Returns the row's default as a node (origin "default"); NULL if the parameter is required. */
brim_yaml *brim_value_default(const brim_param *row, brim_arena *arena);
/* Checks a whole table: known types, widths that match them, fields inside `params_size`, unique keys
 * of [a-z0-9_.], parsable ranges, defaults that parse and lie in range, help not NULL. EINVAL naming the
 * row and the error. A NULL table is fine. */
brim_status brim_value_check_table(const brim_param *table, size_t params_size);
const char *brim_value_type_name(uint32_t type); /* "integer", "number", "bytes", ... */
#endif
