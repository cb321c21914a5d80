/* Parses values by their declared type. Plain scalars follow a strict subset of YAML 1.2's core schema: only `true` and
 * `false` are booleans, an integer may stand for a number but not the reverse, and anything quoted is a string. */
#include "param/value.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
  const char *name;
  uint32_t width;
  uint32_t alignment; /* bytes */
} types[] = {
    [BRIM_BOOL] = {"boolean", sizeof(bool), _Alignof(bool)},
    [BRIM_I64] = {"integer", sizeof(int64_t), _Alignof(int64_t)},
    [BRIM_F64] = {"number", sizeof(double), _Alignof(double)},
    [BRIM_BYTES] = {"bytes", sizeof(uint64_t), _Alignof(uint64_t)},
    [BRIM_SECONDS] = {"seconds", sizeof(double), _Alignof(double)},
    [BRIM_STR] = {"string", sizeof(char *), _Alignof(char *)},
    [BRIM_PATH] = {"path", sizeof(char *), _Alignof(char *)},
    [BRIM_ENUM] = {"enum", sizeof(int32_t), _Alignof(int32_t)},
    [BRIM_LIST] = {"list", sizeof(brim_list), _Alignof(brim_list)},
    [BRIM_SET] = {"set", sizeof(uint64_t), _Alignof(uint64_t)},
    [BRIM_SHARES] = {"shares", sizeof(brim_shares), _Alignof(brim_shares)},
    [BRIM_NAMES] = {"names", sizeof(brim_names), _Alignof(brim_names)},
};
#define TYPE_COUNT (sizeof types / sizeof types[0])

/* Units, with the bytes or seconds of each. */
typedef struct unit {
  const char *name;
  double factor;
} unit;
static const unit byte_units[] = {{"B", 1},         {"KB", 1e3},      {"MB", 1e6},
                                  {"GB", 1e9},      {"TB", 1e12},     {"KiB", 1024},
                                  {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1024.0 * (1 << 30)},
                                  {NULL, 0}};
static const unit time_units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0}};

typedef struct range {
  double low, high;
  bool low_open, high_open; /* exclude the bound itself */
} range;

const char *brim_value_type_name(uint32_t type)
{
  return type < TYPE_COUNT && types[type].name ? types[type].name : "unknown";
}

/* ---- problems ---- */

static void print_got(const brim_yaml *node, brim_text *out)
{
  if (node->kind != BRIM_YAML_SCALAR)
    brim_text_add(out, node->kind == BRIM_YAML_MAP ? "a map" : "a list");
  else if (brim_yaml_is_null(node))
    brim_text_add(out, "null");
  else if (node->quoted)
    brim_text_printf(out, "the string '%.100s'", node->scalar);
  else
    brim_text_printf(out, "%.100s", node->scalar);
}

/* Prints "must be ..., got ..."; returns ECONFIG without changing the thread's error text. */
BRIM_PRINTF(3, 4)
static brim_status problem_is(brim_text *problem, const brim_yaml *got, const char *format, ...)
{
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  brim_text_printf(problem, "must be %s, got ", text);
  print_got(got, problem);
  return BRIM_ECONFIG;
}

/* ---- plain scalars ---- */

static bool is_plain(const brim_yaml *node)
{
  return node->kind == BRIM_YAML_SCALAR && !node->quoted;
}

/* Reads an integer: [-+]?[0-9]+, 0x and 0o. *fits is false if it needs more than 64 bits. */
static bool scan_integer(const char *s, int64_t *out, bool *fits)
{
  static const char decimal[] = "0123456789", octal[] = "01234567", hex[] = "0123456789abcdefABCDEF";
  const bool sign = s[0] == '-' || s[0] == '+';
  const int base = sign || s[0] != '0' ? 10 : s[1] == 'x' ? 16 : s[1] == 'o' ? 8 : 10;
  const char *digits = base != 10 ? s + 2 : sign ? s + 1 : s;
  const size_t length = strspn(digits, base == 16 ? hex : base == 8 ? octal : decimal);
  if (length == 0 || digits[length] != '\0') return false;
  errno = 0;
  *out = strtoll(base == 10 ? s : digits, NULL, base);
  *fits = errno == 0;
  return true;
}

/* The length of a decimal number at the start of `s`: [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? */
static size_t number_length(const char *s)
{
  static const char digits[] = "0123456789";
  size_t n = s[0] == '-' || s[0] == '+';
  const size_t whole = strspn(s + n, digits);
  n += whole;
  if (s[n] == '.') {
    const size_t fraction = strspn(s + n + 1, digits);
    if (whole == 0 && fraction == 0) return 0;
    n += 1 + fraction;
  } else if (whole == 0) {
    return 0;
  }
  if (s[n] == 'e' || s[n] == 'E') {
    const size_t sign = s[n + 1] == '-' || s[n + 1] == '+';
    const size_t exponent = strspn(s + n + 1 + sign, digits);
    if (exponent) n += 1 + sign + exponent;
  }
  return n;
}

static bool scan_number(const char *s, double *out)
{
  const char *unsigned_part = s + (s[0] == '-' || s[0] == '+');
  if (strcmp(unsigned_part, ".inf") == 0) {
    *out = s[0] == '-' ? -INFINITY : INFINITY;
    return true;
  }
  int64_t integer;
  bool fits;
  if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o')) {
    if (!scan_integer(s, &integer, &fits) || !fits) return false;
    *out = (double)integer;
    return true;
  }
  const size_t length = number_length(s);
  if (length == 0 || s[length] != '\0') return false;
  *out = strtod(s, NULL);
  return isfinite(*out);
}

/* Reads a number with or without a unit; without a unit *factor is 0. The case of units does not matter. */
static bool scan_quantity(const char *s, const unit *units, double *number, double *factor)
{
  const size_t length = number_length(s);
  if (length == 0) return false;
  char digits[128];
  if (length >= sizeof digits) return false;
  memcpy(digits, s, length);
  digits[length] = '\0';
  *number = strtod(digits, NULL);
  *factor = 0;
  if (!isfinite(*number)) return false;
  const char *name = s + length + strspn(s + length, " ");
  if (*name == '\0') return true;
  for (; units->name; units++) {
    if (strcasecmp(name, units->name) != 0) continue;
    *factor = units->factor;
    return true;
  }
  return false;
}

/* ---- ranges ---- */

/* Returns the length of a name before a range, such as "auto" in "auto|[1,64]"; 0: there is no name. */
static size_t name_length(const char *text)
{
  return text && text[0] >= 'a' && text[0] <= 'z' ? strcspn(text, "|") : 0;
}

static bool scan_bound(const char *s, const char *end, double *out)
{
  char text[64];
  const size_t length = (size_t)(end - s);
  if (length == 0 || length >= sizeof text) return false;
  memcpy(text, s, length);
  text[length] = '\0';
  if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0) {
    *out = text[0] == '-' ? -INFINITY : INFINITY;
    return true;
  }
  return scan_number(text, out);
}

static bool scan_range(const char *text, range *out)
{
  const size_t length = strlen(text);
  const char *comma = strchr(text, ',');
  if (length < 5 || !comma || !strchr("[(", text[0]) || !strchr("])", text[length - 1])) return false;
  out->low_open = text[0] == '(';
  out->high_open = text[length - 1] == ')';
  return scan_bound(text + 1, comma, &out->low) && scan_bound(comma + 1, text + length - 1, &out->high) &&
         out->low <= out->high;
}

/* Returns the numeric range of a row; NULL: any number. */
static const char *numbers_of(const brim_param *row)
{
  const size_t name = name_length(row->range);
  return name ? row->range + name + 1 : row->range;
}

static bool in_range(const brim_param *row, long double value)
{
  range r;
  /* Tables are checked when they are loaded, so this cannot fail later. */
  if (!row->range || !scan_range(numbers_of(row), &r)) return true;
  const long double low = r.low, high = r.high;
  return (r.low_open ? value > low : value >= low) && (r.high_open ? value < high : value <= high);
}

static brim_status check_range(const brim_param *row, long double value, const brim_yaml *node, brim_text *problem)
{
  const size_t name = name_length(row->range);
  if (in_range(row, value)) return BRIM_OK;
  return problem_is(problem, node, "%.*s%sin %s", (int)name, row->range, name ? " or " : "", numbers_of(row));
}

/* Whether the text is a number that is too large for a double. */
static bool is_too_large(const char *s)
{
  const size_t length = number_length(s);
  return length > 0 && s[length] == '\0' && isinf(strtod(s, NULL));
}

/* ---- one function per type ---- */

static brim_status parse_bool(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  (void)row;
  const bool yes = is_plain(node) && strcmp(node->scalar, "true") == 0;
  if (!yes && !(is_plain(node) && strcmp(node->scalar, "false") == 0))
    return problem_is(problem, node, "true or false");
  *(bool *)field = yes;
  return BRIM_OK;
}

/* Whether the node is the name before the row's range. */
static bool is_name(const brim_param *row, const brim_yaml *node)
{
  const size_t name = name_length(row->range);
  return name && is_plain(node) && strlen(node->scalar) == name && strncmp(node->scalar, row->range, name) == 0;
}

static brim_status parse_i64(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  int64_t value;
  bool fits;
  const size_t name = name_length(row->range);
  if (is_name(row, node)) {
    *(int64_t *)field = -1;
    return BRIM_OK;
  }
  if (!is_plain(node) || !scan_integer(node->scalar, &value, &fits))
    return problem_is(problem, node, "%.*s%san integer", (int)name, name ? row->range : "", name ? " or " : "");
  if (!fits) return problem_is(problem, node, "an integer of at most 64 bits");
  BRIM_TRY(check_range(row, value, node, problem));
  *(int64_t *)field = value;
  return BRIM_OK;
}

static brim_status parse_f64(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  double value;
  if (is_plain(node) && is_too_large(node->scalar))
    return problem_is(problem, node, "a number of at most %.17g", DBL_MAX);
  if (!is_plain(node) || !scan_number(node->scalar, &value)) return problem_is(problem, node, "a number");
  BRIM_TRY(check_range(row, value, node, problem));
  *(double *)field = value;
  return BRIM_OK;
}

/* Sizes with a unit are rounded down to the key's own unit (4GB are 3814 MiB), but never to 0, which means no limit. */
static brim_status parse_bytes(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  const bool mb = brim_ends_with(row->key, "_mb");
  double number, factor;
  int64_t integer = 0;
  bool fits = true;
  const size_t name = name_length(row->range);
  if (is_name(row, node)) {
    *(uint64_t *)field = UINT64_MAX;
    return BRIM_OK;
  }
  const bool plain = is_plain(node) && scan_quantity(node->scalar, byte_units, &number, &factor);
  if (!plain || (factor == 0 && !scan_integer(node->scalar, &integer, &fits)))
    return problem_is(problem, node, "%.*s%sa size: a whole number of %s, or one with a unit (512MiB, 4GB)", (int)name,
                      name ? row->range : "", name ? " or " : "", mb ? "MiB" : "bytes");
  const double one = mb ? 1 << 20 : 1; /* bytes of the key's own unit */
  const long double size = factor == 0 ? (long double)integer : floorl((long double)number * factor / one);
  if (!fits || size * one >= 0x1p63) return problem_is(problem, node, "a size below 2^63 bytes");
  if (size < 0) return problem_is(problem, node, "a size of at least 0 bytes");
  if (size == 0 && factor > 0 && number > 0)
    return problem_is(problem, node, mb ? "a size of at least 1 MiB" : "a size of at least 1 byte");
  BRIM_TRY(check_range(row, size, node, problem));
  *(uint64_t *)field = (uint64_t)size;
  return BRIM_OK;
}

static brim_status parse_seconds(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  const bool minutes = brim_ends_with(row->key, "_minutes");
  double number, factor;
  if (!is_plain(node) || !scan_quantity(node->scalar, time_units, &number, &factor))
    return problem_is(problem, node, "a time: a number of %s, or one with a unit (30s, 5min, 2h)",
                      minutes ? "minutes" : "seconds");
  const double value = factor == 0 ? number : minutes ? number * factor / 60 : number * factor;
  BRIM_TRY(check_range(row, value, node, problem));
  *(double *)field = value;
  return BRIM_OK;
}

static brim_status parse_text(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem,
                              brim_arena *arena)
{
  if (node->kind != BRIM_YAML_SCALAR || brim_yaml_is_null(node))
    return problem_is(problem, node, row->type == BRIM_PATH ? "a path" : "a string");
  *(const char **)field = brim_arena_string(arena, node->scalar);
  return BRIM_OK;
}

/* Returns the index of a name in "ring|tree"; -1 if the list lacks it. */
static int32_t find_name(const char *names, const brim_yaml *node)
{
  int32_t i = 0;
  for (const char *name = names; node->kind == BRIM_YAML_SCALAR && name; i++) {
    const size_t length = strcspn(name, "|");
    if (strlen(node->scalar) == length && strncmp(node->scalar, name, length) == 0) return i;
    name = name[length] ? name + length + 1 : NULL;
  }
  return -1;
}

static int32_t count_names(const char *names)
{
  int32_t count = 1;
  for (const char *p = names; *p; p++) count += *p == '|';
  return count;
}

static brim_status parse_enum(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  const int32_t i = find_name(row->range, node);
  if (i < 0) return problem_is(problem, node, "one of %s", row->range);
  *(int32_t *)field = i;
  return BRIM_OK;
}

static brim_status parse_set(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem)
{
  const int32_t whole = find_name("none|all", node);
  const bool one = node->kind != BRIM_YAML_LIST;
  uint64_t set = whole > 0 ? UINT64_MAX >> (64 - count_names(row->range)) : 0;
  for (size_t i = 0; whole < 0 && i < (one ? 1 : node->count); i++) {
    const brim_yaml *item = one ? node : node->item[i];
    const int32_t name = find_name(row->range, item);
    if (name < 0) return problem_is(problem, item, "all, none, or a list of %s", row->range);
    set |= (uint64_t)1 << name;
  }
  *(uint64_t *)field = set;
  return BRIM_OK;
}

/* A single number is a list of one number. */
static brim_status parse_list(const brim_param *row, const brim_yaml *node, void *field, brim_text *problem,
                              brim_arena *arena)
{
  const bool one = node->kind == BRIM_YAML_SCALAR;
  const size_t count = one ? 1 : node->count;
  if (node->kind == BRIM_YAML_MAP || (one && brim_yaml_is_null(node)))
    return problem_is(problem, node, "a list of numbers");
  double *item = BRIM_ARENA_NEW(arena, double, count);
  for (size_t i = 0; i < count; i++) {
    const brim_yaml *child = one ? node : node->item[i];
    if (is_plain(child) && scan_number(child->scalar, &item[i]) && in_range(row, item[i])) continue;
    if (is_plain(child) && is_too_large(child->scalar))
      return problem_is(problem, child, "a list of numbers of at most %.17g", DBL_MAX);
    if (one) return problem_is(problem, node, row->range ? "a list of numbers in %s" : "a list of numbers", row->range);
    brim_text_printf(problem, "must be a list of numbers%s%s, but item %zu is ", row->range ? " in " : "",
                     row->range ? row->range : "", i);
    print_got(child, problem);
    return BRIM_ECONFIG;
  }
  *(brim_list *)field = (brim_list){item, count};
  return BRIM_OK;
}

/* A single name is a list of one name; the empty string is an empty list. */
static brim_status parse_names(const brim_yaml *node, void *field, brim_text *problem, brim_arena *arena)
{
  const bool one = node->kind == BRIM_YAML_SCALAR, none = one && node->scalar[0] == '\0';
  const size_t count = none ? 0 : one ? 1 : node->count;
  if (node->kind == BRIM_YAML_MAP || (one && brim_yaml_is_null(node)))
    return problem_is(problem, node, "a list of names");
  const char **item = BRIM_ARENA_NEW(arena, const char *, count);
  for (size_t i = 0; i < count; i++) {
    const brim_yaml *child = one ? node : node->item[i];
    if (child->kind != BRIM_YAML_SCALAR || child->scalar[0] == '\0') {
      brim_text_printf(problem, "must be a list of names, but item %zu is ", i);
      print_got(child, problem);
      return BRIM_ECONFIG;
    }
    item[i] = brim_arena_string(arena, child->scalar);
  }
  *(brim_names *)field = (brim_names){item, count};
  return BRIM_OK;
}

/* A fraction, or bytes with a unit. */
static bool scan_share(const brim_yaml *node, brim_share *out)
{
  double number, factor;
  if (!is_plain(node) || !scan_quantity(node->scalar, byte_units, &number, &factor)) return false;
  const bool bytes = factor > 0;
  out->fraction = bytes ? 0 : number;
  out->bytes = bytes && number > 0 && number * factor < 0x1p63 ? (uint64_t)(number * factor) : 0;
  return bytes ? out->bytes > 0 : number > 0 && number <= 1;
}

static brim_status parse_shares(const brim_yaml *node, void *field, brim_text *problem, brim_arena *arena)
{
  size_t count = 0;
  if (node->kind != BRIM_YAML_MAP)
    return problem_is(problem, node, "a map of maps: {DEVICE: {NAME: SHARE}}, with shares as 0.5 or 8000MB");
  for (size_t i = 0; i < node->count; i++) count += node->item[i]->count;
  brim_share *item = BRIM_ARENA_NEW(arena, brim_share, count);
  const brim_shares shares = {item, count};
  for (size_t i = 0; i < node->count; i++) {
    const brim_yaml *row = node->item[i];
    if (row->kind != BRIM_YAML_MAP) {
      brim_text_printf(problem, "'%s' ", node->key[i]);
      return problem_is(problem, row, "a map of names to shares");
    }
    for (size_t k = 0; k < row->count; k++, item++) {
      *item = (brim_share){.of = brim_arena_string(arena, node->key[i]), .who = brim_arena_string(arena, row->key[k])};
      if (scan_share(row->item[k], item)) continue;
      brim_text_printf(problem, "'%s.%s' ", node->key[i], row->key[k]);
      return problem_is(problem, row->item[k], "a share in (0,1], or bytes with a unit (8000MB)");
    }
  }
  *(brim_shares *)field = shares;
  return BRIM_OK;
}

brim_status brim_value_parse(const brim_param *row, const brim_yaml *node, void *params, brim_arena *arena,
                             brim_text *problem)
{
  void *field = (char *)params + row->offset;
  switch (row->type) {
  case BRIM_BOOL:
    return parse_bool(row, node, field, problem);
  case BRIM_I64:
    return parse_i64(row, node, field, problem);
  case BRIM_F64:
    return parse_f64(row, node, field, problem);
  case BRIM_BYTES:
    return parse_bytes(row, node, field, problem);
  case BRIM_SECONDS:
    return parse_seconds(row, node, field, problem);
  case BRIM_STR:
  case BRIM_PATH:
    return parse_text(row, node, field, problem, arena);
  case BRIM_ENUM:
    return parse_enum(row, node, field, problem);
  case BRIM_LIST:
    return parse_list(row, node, field, problem, arena);
  case BRIM_SET:
    return parse_set(row, node, field, problem);
  case BRIM_SHARES:
    return parse_shares(node, field, problem, arena);
  case BRIM_NAMES:
    return parse_names(node, field, problem, arena);
  default:
    return problem_is(problem, node, "of a known type");
  }
}

/* ---- defaults and tables ---- */

brim_yaml *brim_value_default(const brim_param *row, brim_arena *arena)
{
  const brim_yaml_origin origin = {.file = "default"};
  if (!row->def) return NULL;
  brim_yaml *node = NULL;
  if (row->type == BRIM_LIST || row->type == BRIM_SET || row->type == BRIM_SHARES || row->type == BRIM_NAMES) {
    const brim_status status = brim_yaml_parse_value(arena, row->def, origin, &node);
    if (status == BRIM_ENOMEM_HOST)
      brim_out_of_memory(strlen(row->def)); /* returning an error would make the parameter seem to have no default */
    return status == BRIM_OK ? node : NULL;
  }
  node = brim_yaml_scalar(arena, row->def, origin);
  node->quoted = row->type == BRIM_STR || row->type == BRIM_PATH ? brim_yaml_is_null(node) : false;
  return node;
}

static bool key_is_good(const char *key)
{
  const size_t length = strlen(key);
  return length > 0 && length <= 100 && strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_.") == length &&
         key[0] != '.' && key[length - 1] != '.' && !strstr(key, "..") && strcmp(key, "id") != 0;
}

static bool enum_is_good(const char *names)
{
  if (!names || !names[0] || names[0] == '|' || brim_ends_with(names, "|") || strstr(names, "||")) return false;
  for (const char *p = names; *p; p++)
    if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f) return false;
  return true;
}

/* Whether two keys clash: "a" and "a.b" cannot both be keys of one map. */
static bool keys_clash(const char *a, const char *b)
{
  const size_t n = strlen(a), m = strlen(b);
  const size_t shorter = n < m ? n : m;
  if (strncmp(a, b, shorter) != 0) return false;
  return n == m || (n < m ? b[n] : a[m]) == '.';
}

static brim_status check_layout(const brim_param *row, size_t params_size)
{
  if (row->type >= TYPE_COUNT || !types[row->type].name)
    return brim_fail(BRIM_EINVAL, "parameter '%s': unknown type %u", row->key, row->type);
  if (row->width != types[row->type].width)
    return brim_fail(BRIM_EINVAL, "parameter '%s': a field of type %s is %u bytes wide, not %u", row->key,
                     types[row->type].name, types[row->type].width, row->width);
  if (row->offset > params_size || params_size - row->offset < row->width)
    return brim_fail(BRIM_EINVAL, "parameter '%s': its field at offset %zu lies outside the struct of %zu bytes",
                     row->key, row->offset, params_size);
  if (row->offset % types[row->type].alignment != 0)
    return brim_fail(BRIM_EINVAL, "parameter '%s': offset %zu is not aligned for type %s", row->key, row->offset,
                     types[row->type].name);
  if (!row->help) return brim_fail(BRIM_EINVAL, "parameter '%s' has no help", row->key);
  return BRIM_OK;
}

static brim_status check_declared_range(const brim_param *row)
{
  range r;
  const bool named = row->type == BRIM_ENUM || row->type == BRIM_SET;
  if (named && !enum_is_good(row->range))
    return brim_fail(BRIM_EINVAL, "parameter '%s': %s needs its names in range, such as \"ring|tree\"", row->key,
                     row->type == BRIM_ENUM ? "an enum" : "a set");
  if (row->type == BRIM_SET && count_names(row->range) > 64)
    return brim_fail(BRIM_EINVAL, "parameter '%s': a set has at most 64 names", row->key);
  const bool numeric = row->type == BRIM_I64 || row->type == BRIM_F64 || row->type == BRIM_BYTES ||
                       row->type == BRIM_SECONDS || row->type == BRIM_LIST;
  const size_t name = name_length(row->range);
  const bool good_name = name == 0 || ((row->type == BRIM_I64 || row->type == BRIM_BYTES) && row->range[name] == '|');
  if (row->range && numeric && (!good_name || !scan_range(numbers_of(row), &r) || (name && r.low < 0)))
    return brim_fail(BRIM_EINVAL,
                     "parameter '%s': cannot read range \"%s\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\"", row->key,
                     row->range);
  if (row->range && !numeric && !named)
    return brim_fail(BRIM_EINVAL, "parameter '%s': type %s has no range", row->key, types[row->type].name);
  return BRIM_OK;
}

static brim_status check_default(const brim_param *row, void *params, brim_arena *arena)
{
  if (!row->def) return BRIM_OK;
  const brim_yaml *node = brim_value_default(row, arena);
  if (!node) return brim_fail(BRIM_EINVAL, "parameter '%s': cannot read default \"%s\"", row->key, row->def);
  brim_text problem = {0};
  brim_status status = brim_value_parse(row, node, params, arena, &problem);
  if (status != BRIM_OK)
    status = brim_fail(BRIM_EINVAL, "parameter '%s': its default %s", row->key, brim_text_str(&problem));
  brim_text_release(&problem);
  return status;
}

brim_status brim_value_check_table(const brim_param *table, size_t params_size)
{
  if (!table) return BRIM_OK;
  if (params_size > BRIM_YAML_BYTES_MAX)
    return brim_fail(BRIM_EINVAL, "a parameter struct of %zu bytes is larger than 1 MiB", params_size);
  brim_arena arena = {0};
  void *params = brim_arena_alloc(&arena, params_size);
  brim_status status = BRIM_OK;
  for (const brim_param *row = table; row->key && status == BRIM_OK; row++) {
    if (!key_is_good(row->key))
      status = brim_fail(BRIM_EINVAL, "parameter '%s': a key is 1 to 100 of [a-z0-9_.], and not 'id'", row->key);
    for (const brim_param *before = table; before < row && status == BRIM_OK; before++)
      if (keys_clash(before->key, row->key))
        status = brim_fail(BRIM_EINVAL, "parameter '%s' clashes with '%s' before it", row->key, before->key);
    if (status == BRIM_OK) status = check_layout(row, params_size);
    if (status == BRIM_OK) status = check_declared_range(row);
    if (status == BRIM_OK) status = check_default(row, params, &arena);
  }
  brim_arena_release(&arena);
  return status;
}
