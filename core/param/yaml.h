/* YAML documents as trees in which every node has its file, line and column.
 *
 * Parsed with libyaml. These are errors with a position: duplicate keys, merge keys, recursive aliases, more than
 * 10,000 nodes after expansion, nesting deeper than 64, files over 1 MiB, invalid UTF-8, keys that are not scalars,
 * tags, and several documents. The same trees hold the values of command-line overrides. */
#ifndef BRIM_PARAM_YAML_H
#define BRIM_PARAM_YAML_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/text.h"

enum brim_yaml_kind { BRIM_YAML_SCALAR, BRIM_YAML_LIST, BRIM_YAML_MAP };

/* Where a node was written. For a file: its path, with line and column from 1. For the command line: file = "command
 * line", line = the argument's number from 1, column 0, text = the argument; for brim's own choices, such as a
 * policy's, the same with file = "brim's choice" and line 0. For a default: file = "default", line 0. `from`: the
 * interpolation that the value came from, or NULL. */
typedef struct brim_yaml_origin {
  const char *file;
  int line, column;
  const char *text, *from;
} brim_yaml_origin;

/* Whether a "${...}" in a value must still be replaced, or is literal text. */
enum brim_yaml_interpolation { BRIM_YAML_WRITTEN, BRIM_YAML_RESOLVED, BRIM_YAML_FAILED };

typedef struct brim_yaml {
  enum brim_yaml_kind kind;
  const char *scalar;      /* SCALAR: its text, NUL-terminated; never NULL */
  bool quoted;             /* SCALAR: 'x', "x" or a block: always a string */
  const char **key;        /* MAP: `count` keys */
  struct brim_yaml **item; /* MAP and LIST: `count` children */
  size_t count, room;
  enum brim_yaml_interpolation interpolation; /* SCALAR */
  brim_yaml_origin origin;
  const struct brim_yaml *replaced; /* the map's previous value for this key; NULL: none, or unknown */
  int key_line, key_column;         /* position of the key, for a map's child in a file; else 0 */
} brim_yaml;

#define BRIM_YAML_BYTES_MAX ((size_t)1 << 20) /* of a file */
#define BRIM_YAML_NODES_MAX 10000             /* keys and values, after expansion of aliases */
#define BRIM_YAML_DEPTH_MAX 64                /* maps and lists inside each other */
#define BRIM_YAML_KEY_BYTES_MAX 200

/* `arena` owns the tree. ECONFIG with the position; ELOAD if the file cannot be read. */
brim_status brim_yaml_parse_file(brim_arena *arena, const char *path, brim_yaml **out);
brim_status brim_yaml_parse(brim_arena *arena, const char *text, size_t bytes, const char *file, brim_yaml **out);
/* Reads up to BRIM_YAML_BYTES_MAX + 1 bytes; the caller frees *text. ELOAD if the file cannot be read. */
brim_status brim_yaml_read_file(const char *path, char **text, size_t *bytes);
/* Parses text that is not from a file (a word of the command line, a default), as brim_yaml_parse does. Every node and
 * every error gets this origin. */
brim_status brim_yaml_parse_value(brim_arena *arena, const char *text, brim_yaml_origin origin, brim_yaml **out);

brim_yaml *brim_yaml_scalar(brim_arena *arena, const char *text, brim_yaml_origin origin);
brim_yaml *brim_yaml_map(brim_arena *arena, brim_yaml_origin origin);
brim_yaml *brim_yaml_list(brim_arena *arena, brim_yaml_origin origin);
void brim_yaml_append(brim_arena *arena, brim_yaml *list, brim_yaml *value);
brim_yaml *brim_yaml_get(const brim_yaml *map, const char *key);          /* NULL if absent */
brim_yaml *brim_yaml_get_path(const brim_yaml *root, const char *dotted); /* "a.b.0" */
/* Returns the map below `root` that has the last name of a dotted path. Makes maps that are missing or null, with
 * `origin`. NULL if a value is in the place of a map. */
brim_yaml *brim_yaml_make_parent(brim_arena *arena, brim_yaml *root, const char *dotted, brim_yaml_origin origin);
const char *brim_yaml_leaf(const char *dotted);                                           /* the last name of a path */
void brim_yaml_set(brim_arena *arena, brim_yaml *map, const char *key, brim_yaml *value); /* adds or replaces */
bool brim_yaml_remove(brim_yaml *map, const char *key);
brim_yaml *brim_yaml_clone(brim_arena *arena, const brim_yaml *node);
/* The position of the node's key, or the node's own origin if it has no key. */
brim_yaml_origin brim_yaml_key_origin(const brim_yaml *node);
bool brim_yaml_is_null(const brim_yaml *node);    /* true for an unquoted null, ~ or empty scalar */
bool brim_yaml_is_missing(const brim_yaml *node); /* an unquoted ??? */
/* Prints YAML that parses to the same tree; `origins` adds each scalar's origin as a comment. A comment marks missing
 * values. */
void brim_yaml_print(const brim_yaml *node, brim_text *out, bool origins);
/* Prints "configs/model/vit.yaml:7:12" or "command line, argument 3: optimizer.lr=1". */
void brim_yaml_print_origin(const brim_yaml_origin *origin, brim_text *out);
#endif
