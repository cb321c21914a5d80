/* Declarations that the files of template.h share. */
#ifndef TEMPLATE_PARTS_H
#define TEMPLATE_PARTS_H
#include <stdarg.h>
#include <string.h>

#include "parts.h"
#include "template.h"

#define PARAMETERS_MAX 16 /* maximum parameters of a macro, filter or method */

/* ---- texts ---- */

/* A slice as the arguments of "%.*s". */
#define SHOWN(s) (int)(s).bytes, (s).text

static inline bool slice_same(slice a, slice b)
{
  return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.text, b.text, a.bytes) == 0);
}
static inline bool slice_is(slice s, const char *text)
{
  return slice_same(s, (slice){text, strlen(text)});
}
/* Returns whether `words` has this word. `words` has a space after each word. */
bool slice_in_words(slice s, const char *words);
/* Returns the bytes of the character at s[at]. */
static inline size_t character_bytes(slice s, size_t at)
{
  return (size_t)utf8_length(s.text + at, s.bytes - at);
}
/* Returns whether the character is a space for Python's str.isspace. */
static inline bool is_python_space(int32_t c)
{
  return (c >= 28 && c <= 31) || is_space(c);
}
/* slice_skip returns the end of the run of characters of `set` that begins at s[at]. slice_skip_back returns the start
 * of such a run that ends at s[end]. A `set` without text stands for Python's spaces. */
size_t slice_skip(slice s, size_t at, slice set);
size_t slice_skip_back(slice s, size_t end, slice set);

/* ---- memory that is freed as a whole ---- */

typedef struct memory {
  struct memory_chunk *chunk; /* the newest chunk */
  size_t bytes, most;         /* bytes: of all chunks. most: their maximum */
} memory;
/* Returns NULL beyond `most`, or if there is no host memory. */
void *memory_take(memory *m, size_t bytes);
/* Extends the newest piece of memory, `bytes` bytes at `data`, without moving it. Returns false if there is no room. */
bool memory_extend(memory *m, const void *data, size_t bytes, size_t more);
void memory_free(memory *m);

/* ---- values, as Python has them ---- */

enum value_kind {
  VALUE_ABSENT, /* an argument that the caller has left out */
  VALUE_UNDEFINED,
  VALUE_NONE,
  VALUE_BOOL,
  VALUE_INT,
  VALUE_FLOAT,
  VALUE_STRING,
  VALUE_LIST,
  VALUE_TUPLE,
  VALUE_VIEW,      /* a range, or the keys, values or items of a dictionary; has elements, but no text */
  VALUE_GENERATOR, /* like a view, but can be walked only once and has no length */
  VALUE_DICT,
  VALUE_NAMESPACE,
  VALUE_MACRO,
  VALUE_FUNCTION, /* a function, or a method with its object */
  VALUE_LOOP,
  VALUE_KINDS
};

typedef struct value {
  uint8_t kind;
  bool safe; /* of a string: result of the filter `safe`; Python's operations treat it differently */
  union {
    int64_t integer; /* also for VALUE_BOOL */
    double real;
    slice text;                /* for VALUE_UNDEFINED, its name */
    struct sequence *sequence; /* for VALUE_LIST to VALUE_GENERATOR */
    struct dict *dict;         /* also for VALUE_NAMESPACE */
    struct macro *macro;
    struct bound *function;
    struct loop *loop;
  };
} value;

typedef struct sequence {
  bool walked; /* a generator that has been walked */
  size_t count, room;
  value *item;
} sequence;

typedef struct dict {
  sequence key, item; /* item[i] belongs to key[i] */
} dict;

/* ---- the program ---- */

enum node_kind {
  NODE_DATA,      /* text */
  NODE_PRINT,     /* a */
  NODE_IF,        /* a: test; b: body; c: otherwise */
  NODE_FOR,       /* a: target; b: elements; c: body; d: body without elements; e: filter */
  NODE_SET,       /* a: target; b: value */
  NODE_SET_BLOCK, /* a: target; c: body */
  NODE_MACRO,     /* name; a: parameters; c: body */
  NODE_GENERATION,
  NODE_BREAK,
  NODE_CONTINUE,
  NODE_CONST,
  NODE_NAME,  /* name; as a parameter a: default */
  NODE_FIELD, /* name, text: a namespace and its member, as a target */
  NODE_LIST,  /* a: the elements, linked by `next`, as in all lists */
  NODE_TUPLE,
  NODE_DICT,      /* a: key, value, key, value ... */
  NODE_ATTRIBUTE, /* a, text */
  NODE_ITEM,      /* a, b */
  NODE_SLICE,     /* a, b, c, which may be NULL */
  NODE_CALL,      /* a: function; b: arguments */
  NODE_KEYWORD,   /* text, a: an argument by name */
  NODE_BUILTIN,   /* a filter or test: a, builtin; b: arguments */
  NODE_NOT,
  NODE_CONDITION, /* a: test; b, c */
  NODE_BINARY,    /* a, op, b */
  NODE_SIGN,      /* op, a */
  NODE_KINDS
};

/* An operator is a number made from its first two characters; the first one is in the lowest byte. */
#define OP2(x, y) ((x) | (y) << 8)
enum { OP_AND = OP2('a', 'n'), OP_OR = OP2('o', 'r'), OP_IN = OP2('i', 'n'), OP_NOT_IN = OP2('n', 'o') };

typedef struct node {
  uint8_t kind;
  int32_t op, name; /* name: the index of a name in template.name */
  size_t at;        /* position in the template, in bytes */
  slice text;
  struct node *a, *b, *c, *d, *e, *next;
  const struct builtin *builtin;
  value constant;
} node;

#define NAMES_MAX 4096 /* maximum number of different variable names in a template */

struct template
{
  char *title;
  memory memory;
  slice source; /* the text, with "\n" as the end of each line */
  slice *name;
  int32_t name_count, loop; /* loop: the number of the name "loop", or -1 */
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
  int32_t kind; /* a kind of token, or an operator (OP_...) */
  size_t at;
  slice text; /* the text; of a string, without escapes */
} token;
/* template_scan.c: cuts the source into tokens; the last one is TOKEN_END. The caller frees the data of *out. */
brim_status template_scan(template *t, buffer *out);

/* Fails with a message that has the template's name and the place. */
brim_status template_fail(const template *t, size_t at, const char *format, ...) BRIM_PRINTF(3, 4);
brim_status template_no_memory(const template *t);

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
  sequence *elements;
  size_t at;
} loop;

typedef struct run {
  const template *t;
  memory memory;
  buffer out;
  scope *scope;
  const node *at; /* the current node, for messages */
  bool in_filter; /* the filter of a loop is being evaluated */
  int64_t clock;
  size_t steps;
  int32_t depth;
  template_output *output;
  size_t span_room;
} run;

brim_status run_fail(const run *r, const char *format, ...) BRIM_PRINTF(2, 3);
brim_status run_no_memory(const run *r);
/* Counts steps, and fails beyond the limit. */
brim_status run_steps(run *r, size_t count);
/* Enters a level of recursion. Call run_leave afterwards, even if this fails. */
brim_status run_enter(run *r);
static inline void run_leave(run *r)
{
  r->depth--;
}

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
static inline value value_text(slice text)
{
  return (value){.kind = VALUE_STRING, .text = text};
}
static inline value value_undefined(slice name)
{
  return (value){.kind = VALUE_UNDEFINED, .text = name};
}
static inline bool value_is_int(const value *v)
{
  return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}
static inline bool value_is_number(const value *v)
{
  return v->kind >= VALUE_BOOL && v->kind <= VALUE_FLOAT;
}
static inline bool value_is_list(const value *v)
{
  return v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}
const char *value_type(const value *v); /* returns Python's name of the type */
bool value_true(const value *v);
/* Fails for integers that a double cannot represent. */
brim_status value_as_real(run *r, const value *v, double *out);
brim_status value_copy(run *r, const char *text, size_t bytes, value *out);
/* Removes the text from byte `from` on from the output, and returns it as a value. */
brim_status value_take_output(run *r, size_t from, value *out);
brim_status value_sequence(run *r, enum value_kind kind, value *out);
brim_status value_push(run *r, sequence *s, value item);
brim_status value_dict(run *r, value *out);
brim_status value_put(run *r, dict *d, value key, value item);
/* *out is NULL if there is no such key. */
brim_status value_find(run *r, const dict *d, const value *key, const value **out);
brim_status value_equal(run *r, const value *a, const value *b, bool *out);
/* Compares two values. *out is below, equal to or above 0 if a is below, equal to or above b. */
brim_status value_order(run *r, const value *a, const value *b, int *out);
brim_status value_contains(run *r, const value *item, const value *in, bool *out);
/* Returns the elements in order: characters of a string, keys of a dictionary. Walks a generator. */
brim_status value_elements(run *r, const value *v, sequence **out);
brim_status value_slice_of(run *r, const value *v, const value *limit, value *out); /* limit: start, end and step */
brim_status value_json(run *r, const json_t *json, value *out);
size_t value_characters(slice text);

/* template_print.c: these functions append the texts of values to the output. */
brim_status print_text(run *r, const value *v);
brim_status print_bytes(run *r, slice s);
brim_status value_to_string(run *r, const value *v, value *out);
/* indent: spaces per level; negative: everything in one line. */
brim_status print_json(run *r, const value *v, int64_t indent);
enum case_kind { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE };
brim_status print_case(run *r, slice s, enum case_kind kind);

/* template_library.c and template_methods.c: filters, tests, functions and methods. Arguments that the caller leaves
 * out are VALUE_ABSENT. */
typedef struct builtin builtin;
typedef brim_status (*builtin_fn)(run *r, const builtin *b, const value *self, const value *arg, value *out);
struct builtin {
  const char *name;
  builtin_fn call;        /* NULL: refused */
  const char *parameters; /* names, with a space after each; NULL: any arguments, and `self` is a dictionary of them */
  int32_t least;          /* number of parameters that the caller must give */
  int32_t detail;         /* distinguishes the builtins that share a C function */
  uint8_t type;           /* for a method, the kind of its object */
};
typedef struct bound {
  const builtin *builtin;
  value self;
} bound;
#define UNUSED __attribute__((unused))
#define BUILTIN(name)                                                                                                  \
  brim_status name(UNUSED run *r, UNUSED const builtin *b, UNUSED const value *self, UNUSED const value *arg,          \
                   UNUSED value *out)
#define GIVEN(i) (arg[i].kind != VALUE_ABSENT)
BUILTIN(library_case);  /* detail: case_kind */
BUILTIN(library_items); /* detail: the value_kind of the result */
BUILTIN(library_strip); /* detail: STRIP_LEFT, STRIP_RIGHT */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

const builtin *library_filter(slice name);
const builtin *library_test(slice name);
const builtin *library_function(slice name);
/* Calls a builtin with the arguments at `given`. The arguments after them are VALUE_ABSENT. */
brim_status library_call(run *r, const builtin *b, const value *self, const value *given, size_t count, value *out);
brim_status library_want(run *r, const value *v, enum value_kind kind, const char *what);
/* Get an attribute: o.name or o[name]. */
brim_status library_attribute(run *r, const value *o, slice name, value *out);
brim_status library_item(run *r, const value *o, const value *key, value *out);
brim_status library_replace(run *r, slice s, slice from, slice to, value *out);
#endif
