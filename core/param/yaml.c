/* Reads YAML: turns libyaml's events into a tree, and rejects, with the position, features that make a configuration
 * hard to understand. The tree's own small functions are here too; printing is in yaml_print.c. */
#include "param/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "base/utf8.h"

typedef struct anchor {
  struct anchor *next;
  const char *name;
  brim_yaml *node;
  bool open; /* its end has not been read yet: an alias to it would be recursive */
} anchor;

typedef struct reader {
  yaml_parser_t parser;
  brim_arena *arena;
  const char *file;
  const brim_yaml_origin *fixed; /* not NULL: every node gets this origin */
  const char *text;              /* the text being parsed: UTF-8 */
  size_t bytes;
  size_t nodes;
  anchor *anchors; /* newest first, because names may be reused */
} reader;

/* ---- the tree ---- */

static brim_yaml *new_node(brim_arena *arena, enum brim_yaml_kind kind, brim_yaml_origin origin)
{
  brim_yaml *node = BRIM_ARENA_NEW(arena, brim_yaml, 1);
  node->kind = kind;
  node->scalar = "";
  node->origin = origin;
  return node;
}

brim_yaml *brim_yaml_scalar(brim_arena *arena, const char *text, brim_yaml_origin origin)
{
  brim_yaml *node = new_node(arena, BRIM_YAML_SCALAR, origin);
  node->scalar = brim_arena_string(arena, text);
  return node;
}

brim_yaml *brim_yaml_map(brim_arena *arena, brim_yaml_origin origin)
{
  return new_node(arena, BRIM_YAML_MAP, origin);
}
brim_yaml *brim_yaml_list(brim_arena *arena, brim_yaml_origin origin)
{
  return new_node(arena, BRIM_YAML_LIST, origin);
}

static void add_child(brim_arena *arena, brim_yaml *node, const char *key, brim_yaml *child)
{
  size_t room = node->room;
  BRIM_ARENA_GROW(arena, node->item, node->count, room);
  if (node->kind == BRIM_YAML_MAP) {
    BRIM_ARENA_GROW(arena, node->key, node->count, node->room);
    node->key[node->count] = key;
  }
  node->room = room;
  node->item[node->count++] = child;
}

void brim_yaml_append(brim_arena *arena, brim_yaml *list, brim_yaml *value)
{
  add_child(arena, list, NULL, value);
}

static brim_yaml *get_n(const brim_yaml *node, const char *key, size_t length)
{
  if (node->kind == BRIM_YAML_MAP) {
    for (size_t i = 0; i < node->count; i++)
      if (strncmp(node->key[i], key, length) == 0 && node->key[i][length] == '\0') return node->item[i];
  } else if (node->kind == BRIM_YAML_LIST && length > 0 && length < 10 && strspn(key, "0123456789") >= length) {
    const unsigned long i = strtoul(key, NULL, 10);
    if (i < node->count) return node->item[i];
  }
  return NULL;
}

brim_yaml *brim_yaml_get(const brim_yaml *map, const char *key)
{
  return map && map->kind == BRIM_YAML_MAP ? get_n(map, key, strlen(key)) : NULL;
}

brim_yaml *brim_yaml_get_path(const brim_yaml *root, const char *dotted)
{
  const brim_yaml *node = root;
  while (node) {
    const size_t length = strcspn(dotted, ".");
    node = get_n(node, dotted, length);
    if (dotted[length] == '\0') break;
    dotted += length + 1;
  }
  return (brim_yaml *)node;
}

brim_yaml *brim_yaml_make_parent(brim_arena *arena, brim_yaml *root, const char *dotted, brim_yaml_origin origin)
{
  brim_yaml *node = root;
  for (const char *dot; node && (dot = strchr(dotted, '.')); dotted = dot + 1) {
    const char *name = brim_arena_string_n(arena, dotted, (size_t)(dot - dotted));
    brim_yaml *child = brim_yaml_get(node, name);
    if (!child || brim_yaml_is_null(child)) {
      child = brim_yaml_map(arena, origin);
      brim_yaml_set(arena, node, name, child);
    }
    node = child->kind == BRIM_YAML_MAP ? child : NULL;
  }
  return node;
}

const char *brim_yaml_leaf(const char *dotted)
{
  const char *dot = strrchr(dotted, '.');
  return dot ? dot + 1 : dotted;
}

void brim_yaml_set(brim_arena *arena, brim_yaml *map, const char *key, brim_yaml *value)
{
  for (size_t i = 0; i < map->count; i++) {
    if (strcmp(map->key[i], key) != 0) continue;
    if (value != map->item[i]) value->replaced = map->item[i];
    map->item[i] = value;
    return;
  }
  add_child(arena, map, brim_arena_string(arena, key), value);
}

bool brim_yaml_remove(brim_yaml *map, const char *key)
{
  for (size_t i = 0; i < map->count; i++) {
    if (strcmp(map->key[i], key) != 0) continue;
    memmove(map->key + i, map->key + i + 1, (map->count - i - 1) * sizeof *map->key);
    memmove(map->item + i, map->item + i + 1, (map->count - i - 1) * sizeof *map->item);
    map->count--;
    return true;
  }
  return false;
}

brim_yaml *brim_yaml_clone(brim_arena *arena, const brim_yaml *node)
{
  brim_yaml *copy = brim_arena_copy(arena, node, sizeof *node);
  copy->count = copy->room = 0;
  copy->key = NULL;
  copy->item = NULL;
  for (size_t i = 0; i < node->count; i++)
    add_child(arena, copy, node->kind == BRIM_YAML_MAP ? node->key[i] : NULL, brim_yaml_clone(arena, node->item[i]));
  return copy;
}

brim_yaml_origin brim_yaml_key_origin(const brim_yaml *node)
{
  brim_yaml_origin origin = node->origin;
  if (node->key_line > 0 && !origin.text) {
    origin.line = node->key_line;
    origin.column = node->key_column;
  }
  return origin;
}

bool brim_yaml_is_null(const brim_yaml *node)
{
  static const char *const names[] = {"", "~", "null", "Null", "NULL"};
  if (node->kind != BRIM_YAML_SCALAR || node->quoted) return false;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(node->scalar, names[i]) == 0) return true;
  return false;
}

bool brim_yaml_is_missing(const brim_yaml *node)
{
  return node->kind == BRIM_YAML_SCALAR && !node->quoted && strcmp(node->scalar, "???") == 0;
}

void brim_yaml_print_origin(const brim_yaml_origin *origin, brim_text *out)
{
  brim_text_add(out, origin->file ? origin->file : "unknown");
  if (origin->text) {
    if (origin->line > 0) brim_text_printf(out, ", argument %d", origin->line);
    brim_text_printf(out, ": %s", origin->text);
  } else if (origin->line > 0) {
    brim_text_printf(out, ":%d:%d", origin->line, origin->column);
  }
  if (origin->from && !origin->text) brim_text_printf(out, ", from %.200s", origin->from);
}

/* ---- errors ---- */

static brim_yaml_origin origin_at(const reader *r, const yaml_mark_t *mark)
{
  if (r->fixed) return *r->fixed;
  return (brim_yaml_origin){.file = r->file, .line = (int)mark->line + 1, .column = (int)mark->column + 1};
}

static brim_status fail_with(brim_yaml_origin origin, const char *problem)
{
  brim_text where = {0};
  brim_yaml_print_origin(&origin, &where);
  const brim_status status = brim_fail(BRIM_ECONFIG, "%s\n  %s", problem, brim_text_str(&where));
  brim_text_release(&where);
  return status;
}

BRIM_PRINTF(3, 4)
static brim_status refuse(const reader *r, const yaml_mark_t *mark, const char *format, ...)
{
  char problem[512];
  va_list list;
  va_start(list, format);
  vsnprintf(problem, sizeof problem, format, list);
  va_end(list);
  return fail_with(origin_at(r, mark), problem);
}

/* ---- from events to nodes ---- */

/* Returns the character at an index of libyaml, which counts characters instead of bytes. */
static int32_t character_at(const reader *r, size_t index)
{
  const char *s = r->text, *end = s + r->bytes;
  int32_t c = -1;
  for (size_t i = 0; i <= index; i++) c = s < end ? brim_utf8_next(&s, end) : -1;
  return c;
}

static brim_status read_event(reader *r, yaml_event_t *event)
{
  if (yaml_parser_parse(&r->parser, event)) return BRIM_OK;
  const yaml_parser_t *p = &r->parser;
  if (p->error == YAML_MEMORY_ERROR) return brim_fail(BRIM_ENOMEM_HOST, "out of host memory while reading %s", r->file);
  if (p->error == YAML_SCANNER_ERROR && character_at(r, p->problem_mark.index) == '\t')
    return refuse(r, &p->problem_mark, "a tab: in YAML, lines are indented with spaces");
  return refuse(r, &p->problem_mark, "not valid YAML: %s%s%s", p->problem ? p->problem : "unknown error",
                p->context ? " " : "", p->context ? p->context : "");
}

static brim_status count_nodes(reader *r, const yaml_mark_t *mark, size_t more)
{
  r->nodes += more;
  if (r->nodes <= BRIM_YAML_NODES_MAX) return BRIM_OK;
  return refuse(r, mark, "more than %d nodes", BRIM_YAML_NODES_MAX);
}

/* Counts the nodes of a subtree, including keys, and measures its depth. */
static void measure(const brim_yaml *node, size_t *nodes, int *depth)
{
  int deepest = 0;
  *nodes += 1;
  for (size_t i = 0; i < node->count; i++) {
    int below = 0;
    measure(node->item[i], nodes, &below);
    if (below > deepest) deepest = below;
  }
  if (node->kind == BRIM_YAML_MAP) *nodes += node->count;
  *depth = node->kind == BRIM_YAML_SCALAR ? 0 : deepest + 1;
}

static brim_status read_alias(reader *r, const char *name, const yaml_mark_t *mark, int depth, brim_yaml **out)
{
  const anchor *a = r->anchors;
  while (a && strcmp(a->name, name) != 0) a = a->next;
  if (!a) return refuse(r, mark, "alias '*%s' has no anchor '&%s' before it", name, name);
  if (a->open) return refuse(r, mark, "recursive alias '*%s': it is inside its own anchor", name);
  size_t nodes = 0;
  int below = 0;
  measure(a->node, &nodes, &below);
  if (depth + below > BRIM_YAML_DEPTH_MAX) return refuse(r, mark, "nested deeper than %d", BRIM_YAML_DEPTH_MAX);
  BRIM_TRY(count_nodes(r, mark, nodes));
  *out = brim_yaml_clone(r->arena, a->node);
  return BRIM_OK;
}

static anchor *add_anchor(reader *r, const yaml_char_t *name, brim_yaml *node)
{
  if (!name) return NULL;
  anchor *a = BRIM_ARENA_NEW(r->arena, anchor, 1);
  *a = (anchor){r->anchors, brim_arena_string(r->arena, (const char *)name), node, true};
  r->anchors = a;
  return a;
}

static brim_status check_key(reader *r, const brim_yaml *map, const yaml_event_t *event, const char **key)
{
  const yaml_mark_t *mark = &event->start_mark;
  if (event->type != YAML_SCALAR_EVENT) return refuse(r, mark, "a key must be a scalar");
  if (event->data.scalar.tag || event->data.scalar.anchor)
    return refuse(r, mark, "a key cannot have a tag or an anchor");
  const char *text = (const char *)event->data.scalar.value;
  const size_t length = event->data.scalar.length;
  if (strlen(text) != length) return refuse(r, mark, "a key holds the character NUL");
  if (length == 0) return refuse(r, mark, "a key is empty");
  if (length > BRIM_YAML_KEY_BYTES_MAX)
    return refuse(r, mark, "a key is longer than %d bytes: it has %zu", BRIM_YAML_KEY_BYTES_MAX, length);
  if (strcmp(text, "<<") == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
    return refuse(r, mark, "merge keys '<<' are not supported: name the file in the defaults list instead");
  const brim_yaml *first = get_n(map, text, length);
  if (first && r->fixed) return refuse(r, mark, "duplicate key '%s'", text);
  if (first) return refuse(r, mark, "duplicate key '%s' (first in line %d)", text, first->key_line);
  BRIM_TRY(count_nodes(r, mark, 1));
  *key = brim_arena_string_n(r->arena, text, length);
  return BRIM_OK;
}

static brim_status read_node(reader *r, yaml_event_t *event, int depth, brim_yaml **out);

static brim_status read_list(reader *r, brim_yaml *list, int depth)
{
  for (;;) {
    yaml_event_t event;
    BRIM_TRY(read_event(r, &event));
    if (event.type == YAML_SEQUENCE_END_EVENT) {
      yaml_event_delete(&event);
      return BRIM_OK;
    }
    brim_yaml *child = NULL;
    BRIM_TRY(read_node(r, &event, depth, &child));
    add_child(r->arena, list, NULL, child);
  }
}

static brim_status read_map(reader *r, brim_yaml *map, int depth)
{
  for (;;) {
    yaml_event_t event;
    BRIM_TRY(read_event(r, &event));
    if (event.type == YAML_MAPPING_END_EVENT) {
      yaml_event_delete(&event);
      return BRIM_OK;
    }
    const yaml_mark_t mark = event.start_mark;
    const char *key = NULL;
    const brim_status status = check_key(r, map, &event, &key);
    yaml_event_delete(&event);
    BRIM_TRY(status);
    brim_yaml *child = NULL;
    BRIM_TRY(read_event(r, &event));
    BRIM_TRY(read_node(r, &event, depth, &child));
    if (!r->fixed) {
      child->key_line = (int)mark.line + 1;
      child->key_column = (int)mark.column + 1;
    }
    add_child(r->arena, map, key, child);
  }
}

static brim_status read_scalar(reader *r, const yaml_event_t *event, brim_yaml **out)
{
  const char *text = (const char *)event->data.scalar.value;
  const size_t length = event->data.scalar.length;
  if (strlen(text) != length) return refuse(r, &event->start_mark, "a value holds the character NUL");
  brim_yaml *node = brim_yaml_scalar(r->arena, text, origin_at(r, &event->start_mark));
  node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  anchor *a = add_anchor(r, event->data.scalar.anchor, node);
  if (a) a->open = false;
  *out = node;
  return count_nodes(r, &event->start_mark, 1);
}

static brim_status read_container(reader *r, const yaml_event_t *event, int depth, brim_yaml **out)
{
  const bool map = event->type == YAML_MAPPING_START_EVENT;
  if (depth + 1 > BRIM_YAML_DEPTH_MAX)
    return refuse(r, &event->start_mark, "nested deeper than %d", BRIM_YAML_DEPTH_MAX);
  BRIM_TRY(count_nodes(r, &event->start_mark, 1));
  brim_yaml *node = new_node(r->arena, map ? BRIM_YAML_MAP : BRIM_YAML_LIST, origin_at(r, &event->start_mark));
  anchor *a = add_anchor(r, map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor, node);
  *out = node;
  BRIM_TRY(map ? read_map(r, node, depth + 1) : read_list(r, node, depth + 1));
  if (a) a->open = false;
  return BRIM_OK;
}

/* Reads the node that starts with `event`, and deletes the event. `depth` counts the maps and lists around it. */
static brim_status read_node(reader *r, yaml_event_t *event, int depth, brim_yaml **out)
{
  const yaml_char_t *tag = event->type == YAML_SCALAR_EVENT           ? event->data.scalar.tag
                           : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.tag
                           : event->type == YAML_MAPPING_START_EVENT  ? event->data.mapping_start.tag
                                                                      : NULL;
  brim_status status;
  if (tag)
    status = refuse(r, &event->start_mark, "tags ('%s') are not supported: quote a value to make it a string", tag);
  else if (event->type == YAML_ALIAS_EVENT)
    status = read_alias(r, (const char *)event->data.alias.anchor, &event->start_mark, depth, out);
  else if (event->type == YAML_SCALAR_EVENT)
    status = read_scalar(r, event, out);
  else
    status = read_container(r, event, depth, out);
  yaml_event_delete(event);
  return status;
}

static brim_status skip_event(reader *r, yaml_event_type_t *type, yaml_mark_t *mark)
{
  yaml_event_t event;
  BRIM_TRY(read_event(r, &event));
  *type = event.type;
  *mark = event.start_mark;
  yaml_event_delete(&event);
  return BRIM_OK;
}

static brim_status read_document(reader *r, brim_yaml **out)
{
  yaml_event_type_t type;
  yaml_mark_t mark;
  BRIM_TRY(skip_event(r, &type, &mark)); /* start of the stream */
  BRIM_TRY(skip_event(r, &type, &mark));
  if (type == YAML_STREAM_END_EVENT) { /* the text has only comments, or nothing */
    *out = brim_yaml_scalar(r->arena, "", origin_at(r, &mark));
    return BRIM_OK;
  }
  yaml_event_t event;
  BRIM_TRY(read_event(r, &event));
  BRIM_TRY(read_node(r, &event, 0, out));
  BRIM_TRY(skip_event(r, &type, &mark)); /* end of the document */
  BRIM_TRY(skip_event(r, &type, &mark));
  if (type != YAML_STREAM_END_EVENT) return refuse(r, &mark, "several documents in one file: only one is allowed");
  return BRIM_OK;
}

/* Returns the bytes of a byte order mark, which libyaml would treat as a character if the caller sets the encoding. */
static size_t order_mark_bytes(const char *text, size_t bytes)
{
  return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Checks the characters. libyaml would find the same errors, but without line and column. */
static brim_status check_characters(const reader *r, const char *text, size_t bytes)
{
  const char *s = text, *end = text + bytes;
  yaml_mark_t mark = {0};
  while (s < end) {
    const int32_t c = brim_utf8_next(&s, end);
    if (c < 0) return refuse(r, &mark, "not valid UTF-8: byte 0x%02x", (unsigned)(unsigned char)*s);
    if (!brim_utf8_is_yaml(c)) return refuse(r, &mark, "control character U+%04X", (unsigned)c);
    if (brim_utf8_is_break(c) && !(c == '\r' && s < end && *s == '\n')) {
      mark.line++;
      mark.column = 0;
    } else {
      mark.column++;
    }
  }
  return BRIM_OK;
}

static brim_status parse(brim_arena *arena, const char *text, size_t bytes, const char *file,
                         const brim_yaml_origin *fixed, brim_yaml **out)
{
  reader r = {.arena = arena, .file = file, .fixed = fixed};
  if (bytes > BRIM_YAML_BYTES_MAX)
    return refuse(&r, &(yaml_mark_t){0}, fixed ? "the value is larger than 1 MiB" : "the file is larger than 1 MiB");
  const size_t skipped = order_mark_bytes(text, bytes);
  text += skipped;
  bytes -= skipped;
  r.text = text;
  r.bytes = bytes;
  BRIM_TRY(check_characters(&r, text, bytes));
  if (!yaml_parser_initialize(&r.parser))
    return brim_fail(BRIM_ENOMEM_HOST, "out of host memory while reading %s", file);
  yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
  const brim_status status = read_document(&r, out);
  yaml_parser_delete(&r.parser);
  return status;
}

brim_status brim_yaml_parse(brim_arena *arena, const char *text, size_t bytes, const char *file, brim_yaml **out)
{
  return parse(arena, text, bytes, brim_arena_string(arena, file), NULL, out);
}

brim_status brim_yaml_parse_value(brim_arena *arena, const char *text, brim_yaml_origin origin, brim_yaml **out)
{
  return parse(arena, text, strlen(text), origin.file, &origin, out);
}

brim_status brim_yaml_read_file(const char *path, char **text, size_t *bytes)
{
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* open() on a pipe would wait for a writer */
    return brim_fail(BRIM_ELOAD, "cannot read %s: it is %s", path, S_ISDIR(info.st_mode) ? "a folder" : "not a file");
  FILE *f = fopen(path, "rb");
  if (!f) return brim_fail(BRIM_ELOAD, "cannot open %s: %s", path, strerror(errno));
  *text = brim_xmalloc(BRIM_YAML_BYTES_MAX + 1); /* reads one more byte, to detect that the file is too large */
  *bytes = fread(*text, 1, BRIM_YAML_BYTES_MAX + 1, f);
  const int error = ferror(f) ? errno : 0;
  fclose(f);
  if (!error) return BRIM_OK;
  free(*text);
  return brim_fail(BRIM_ELOAD, "cannot read %s: %s", path, strerror(error));
}

brim_status brim_yaml_parse_file(brim_arena *arena, const char *path, brim_yaml **out)
{
  char *text = NULL;
  size_t bytes = 0;
  BRIM_TRY(brim_yaml_read_file(path, &text, &bytes));
  const brim_status status = brim_yaml_parse(arena, text, bytes, path, out);
  free(text);
  return status;
}
