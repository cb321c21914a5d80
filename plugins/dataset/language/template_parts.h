/* Internal to the files of template.h. */
#ifndef TEMPLATE_PARTS_H
#define TEMPLATE_PARTS_H
#include <stdarg.h>
#include <string.h>

#include "parts.h"
#include "template.h"

/* ---- memory that is freed as a whole ---- */

typedef struct memory {
  struct memory_chunk *chunk; /* the newest */
  size_t bytes, most;         /* of all chunks */
} memory;
/* Returns NULL beyond `most`, or without host memory. */
void *memory_take(memory *m, size_t bytes);
/* Makes `bytes` bytes at `data`, the newest piece of memory, longer in its place; false: there is no room. */
bool memory_extend(memory *m, const void *data, size_t bytes, size_t more);
void memory_free(memory *m);

/* ---- values, as Python has them ---- */

enum value_kind {
  VALUE_ABSENT, /* an argument that is not given */
  VALUE_UNDEFINED,
  VALUE_NONE,
  VALUE_BOOL,
  VALUE_INT,
  VALUE_FLOAT,
  VALUE_STRING,
  VALUE_SEQUENCE,
  VALUE_DICT,
  VALUE_NAMESPACE,
  VALUE_MACRO,
  VALUE_FUNCTION,
  VALUE_METHOD,
  VALUE_LOOP,
  VALUE_KINDS
};

typedef struct value {
  uint8_t kind;
  bool safe; /* of a string: a result of the filters safe and escape, which "+" treats differently */
  union {
    int64_t integer; /* of VALUE_BOOL too */
    double real;
    slice text; /* of VALUE_UNDEFINED: its name */
    struct sequence *sequence;
    struct dict *dict; /* of VALUE_NAMESPACE too */
    struct macro *macro;
    const struct builtin *function;
    struct bound *method;
    struct loop *loop;
  };
} value;

/* Values of Python that have elements in an order. A generator can be walked once. */
enum sequence_kind {
  SEQUENCE_LIST,
  SEQUENCE_TUPLE,
  SEQUENCE_RANGE,
  SEQUENCE_KEYS,
  SEQUENCE_VALUES,
  SEQUENCE_ITEMS,
  SEQUENCE_GENERATOR
};
typedef struct sequence {
  enum sequence_kind kind;
  bool walked; /* of a generator */
  size_t count, room;
  value *item;
} sequence;

typedef struct dict {
  size_t count, room;
  struct dict_pair {
    value key, value;
  } * pair;
} dict;

/* ---- the program ---- */

enum node_kind {
  NODE_DATA,       /* text */
  NODE_PRINT,      /* a */
  NODE_IF,         /* a: test; b: body; c: otherwise */
  NODE_FOR,        /* a: target; b: sequence; c: body; d: body without elements; e: filter */
  NODE_SET,        /* a: target; b: value */
  NODE_SET_BLOCK,  /* a: target; b: filters; c: body */
  NODE_MACRO,      /* name; a: parameters; c: body; e: the macro around it; flag: uses caller */
  NODE_CALL_BLOCK, /* a: parameters; b: call; c: body */
  NODE_FILTER_BLOCK,
  NODE_GENERATION, /* c: body */
  NODE_BREAK,
  NODE_CONTINUE,
  NODE_CONST,
  NODE_NAME,  /* name; as a parameter a: default */
  NODE_FIELD, /* name, text: a namespace and its member, as a target */
  NODE_LIST,  /* a: elements, by next; so in all lists */
  NODE_TUPLE,
  NODE_DICT,      /* a: keys and values by turns */
  NODE_ATTRIBUTE, /* a, text */
  NODE_ITEM,      /* a, b */
  NODE_SLICE,     /* a, b, c, which may be NULL */
  NODE_CALL,      /* a: function; b: arguments */
  NODE_KEYWORD,   /* text, a: an argument by name */
  NODE_FILTER,    /* a: NULL is the text of a block; builtin; b: arguments */
  NODE_TEST,
  NODE_NOT,
  NODE_AND,
  NODE_OR,
  NODE_CONDITION, /* a: test; b, c */
  NODE_COMPARE,   /* a; b: operands, each with op and a */
  NODE_BINARY,    /* op */
  NODE_CONCAT,    /* a: operands */
  NODE_SIGN,      /* op, a */
  NODE_KINDS
};

/* An operator is its characters, the first in the lowest byte; "in" and "not in" have no others. */
#define OP2(x, y) ((x) | (y) << 8)
enum { OP_IN = 1 << 16, OP_NOT_IN };

typedef struct node {
  uint8_t kind;
  bool flag;
  int32_t op, name; /* name: a number in template.name */
  size_t at;        /* byte of the template */
  slice text;
  struct node *a, *b, *c, *d, *e, *next;
  const struct builtin *builtin;
  value constant;
} node;

#define NAMES_MAX 4096 /* different names of variables in a template */

struct template
{
  char *title;
  memory memory;
  slice source; /* with "\n" as the end of each line */
  slice *name;
  int32_t name_count;
  int32_t loop, caller; /* numbers of these names, or -1 */
  node *body;
  bool generates;
};

enum token_kind {
  TOKEN_END = 1 << 20,
  TOKEN_DATA,
  TOKEN_PRINT,
  TOKEN_BLOCK,
  TOKEN_CLOSE,
  TOKEN_NAME,
  TOKEN_STRING,
  TOKEN_INT,
  TOKEN_FLOAT
};
typedef struct token {
  int32_t kind; /* or an operator */
  size_t at;
  slice text; /* of a string: decoded */
  int64_t integer;
  double real;
} token;
typedef struct tokens {
  token *token;
  size_t count, room;
} tokens;
/* template_scan.c: cuts the source into tokens; the last is TOKEN_END. The caller frees them. */
brim_status template_scan(template *t, tokens *out);

/* Fails with the template's name and the place. */
brim_status template_fail(const template *t, size_t at, const char *format, ...) BRIM_PRINTF(3, 4);

/* ---- running ---- */

typedef struct binding {
  int32_t name;
  value value;
  struct binding *next;
} binding;
typedef struct scope {
  struct scope *parent;
  binding *first;
} scope;

typedef struct macro {
  const node *node;
  scope *outer;
} macro;

typedef struct loop {
  const node *node;
  scope *scope; /* of the filter's test */
  sequence *from, *passed;
  size_t taken, at; /* taken: elements of `from` that the filter has seen; at: the current one of `passed` */
  value changed;
} loop;

typedef struct run {
  const template *t;
  memory memory;
  buffer out;
  scope *scope;
  const node *at; /* for messages */
  value block;    /* the text of a block, for its filters */
  int64_t clock;
  size_t steps;
  int32_t depth;
  template_output *output;
  size_t span_room;
} run;

brim_status run_fail(const run *r, const char *format, ...) BRIM_PRINTF(2, 3);
brim_status run_no_memory(const run *r);
/* Counts work; fails beyond the limit. */
brim_status run_steps(run *r, size_t count);
/* Enters a level of recursion; leave with run_leave, if it succeeded or not. */
brim_status run_enter(run *r);
static inline void run_leave(run *r)
{
  r->depth--;
}
brim_status run_filter(run *r, const value *self, const value *arguments, size_t count, value *out);

/* template_value.c */
static inline value value_of(enum value_kind kind)
{
  return (value){.kind = (uint8_t)kind};
}
static inline value value_bool(bool b)
{
  return (value){.kind = VALUE_BOOL, .integer = b};
}
static inline value value_int(int64_t i)
{
  return (value){.kind = VALUE_INT, .integer = i};
}
static inline value value_real(double d)
{
  return (value){.kind = VALUE_FLOAT, .real = d};
}
static inline value value_slice(const char *text, size_t bytes)
{
  return (value){.kind = VALUE_STRING, .text = {text, bytes}};
}
static inline bool value_is_sequence(const value *v, enum sequence_kind kind)
{
  return v->kind == VALUE_SEQUENCE && v->sequence->kind == kind;
}
const char *value_type(const value *v); /* Python's name */
bool value_true(const value *v);
bool value_number(const value *v, double *out); /* bool, int, float */
brim_status value_copy(run *r, const char *text, size_t bytes, value *out);
/* The text that the output has from byte `from`, which is removed from it. */
brim_status value_take_output(run *r, size_t from, value *out);
brim_status value_sequence(run *r, enum sequence_kind kind, size_t room, value *out);
brim_status value_push(run *r, sequence *s, value item);
brim_status value_dict(run *r, size_t room, value *out);
brim_status value_put(run *r, dict *d, value key, value item);
brim_status value_find(run *r, const dict *d, const value *key, const value **out); /* *out NULL: no such key */
brim_status value_equal(run *r, const value *a, const value *b, bool *out);
/* op: '<', '>', "<=", ">=". */
brim_status value_less(run *r, const value *a, const value *b, int op, bool *out);
brim_status value_contains(run *r, const value *item, const value *in, bool *out);
/* The elements in order: of strings characters, of dicts keys; walks a generator. */
brim_status value_elements(run *r, const value *v, sequence **out);
brim_status value_slice_of(run *r, const value *v, const value *limit, value *out); /* limit[3]: first, end, step */
brim_status value_json(run *r, const json_t *json, value *out);
size_t value_characters(slice text);

/* template_print.c: texts of values are appended to the output. */
brim_status print_text(run *r, const value *v);
brim_status print_bytes(run *r, const char *text, size_t bytes);
brim_status value_to_string(run *r, const value *v, value *out);
brim_status print_json(run *r, const value *v, const value *indent, bool ascii, bool sorted);

/* template_case.c */
enum case_kind { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE };
brim_status print_case(run *r, slice s, enum case_kind kind);

/* template_library.c: filters, tests, functions and methods. Arguments that are not given are VALUE_ABSENT. */
#define PARAMETERS_MAX 6
typedef struct builtin {
  const char *name;
  brim_status (*call)(run *r, const value *self, const value *argument, value *out); /* NULL: refused */
  const char *parameters;                                                            /* names with a space after each */
  int32_t least;                                                                     /* parameters that must be given */
  uint8_t type;                                                                      /* of a method's object */
} builtin;
typedef struct bound {
  const builtin *builtin;
  value self;
} bound;
const builtin *library_filter(slice name);
const builtin *library_test(slice name);
const builtin *library_function(slice name);
/* Returns the method of a value, or NULL. One whose call is NULL exists in Python but not here; if its parameters are
 * NULL too, Jinja's sandbox hides it. */
const builtin *library_method(const value *v, slice name);
/* An attribute: o.name, or o[name]. */
brim_status library_attribute(run *r, const value *o, slice name, value *out);
brim_status library_item(run *r, const value *o, const value *key, value *out);
brim_status loop_fill(run *r, loop *l, size_t count); /* template_run.c */
brim_status library_items(run *r, const value *self, value *out);

/* template_methods.c */
brim_status library_strip(run *r, const value *text, const value *characters, bool left, bool right, value *out);
/* most: replacements; negative: all. */
brim_status library_replace(run *r, slice s, slice from, slice to, int64_t most, value *out);
/* Moves *end from the beginning of a line to its end, and sets *next to the beginning of the next one. */
void library_line(slice s, size_t *end, size_t *next);

static inline bool slice_is(slice s, const char *text)
{
  return strlen(text) == s.bytes && memcmp(s.text, text, s.bytes) == 0;
}
/* Python's str.isspace. */
static inline bool is_python_space(int32_t c)
{
  return (c >= 28 && c <= 31) || is_space(c);
}
#endif
