/* Values are replaced on demand. The values to which a value refers are replaced first, and the stack of values in
 * progress reveals cycles. Replaced values are marked, because an escaped "${" in them must not be read again. */
#include "config/interpolate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "config/alias.h"

/* The scope of names in ${...}. */
enum scope { SCOPE_TREE, SCOPE_OPTIONS, SCOPE_ENVIRONMENT };

typedef struct job {
  brim_composition *c;
  const brim_schema *schema;
  enum scope scope;
  struct under_way {
    const char *path;
    brim_yaml *node;
  } stack[BRIM_INTERPOLATION_DEPTH_MAX];
  size_t count;
  int nesting;
  size_t bytes, nodes; /* totals for all values so far */
} job;

static bool resolve(job *j, const char *path, brim_yaml *node);
static brim_yaml *evaluate(job *j, const char **s);

static const struct under_way *top(const job *j)
{
  return &j->stack[j->count - 1];
}

/* Adds the problem "'key' ...", with the position of the value that is being replaced; returns NULL. */
BRIM_PRINTF(2, 3)
static brim_yaml *fail(const job *j, const char *format, ...)
{
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  brim_problem_at(&j->c->problems, &top(j)->node->origin, "'%s' %s", top(j)->path, text);
  return NULL;
}

static brim_yaml *new_text(const job *j, const char *text)
{
  brim_yaml *node = brim_yaml_scalar(j->c->arena, text, top(j)->node->origin);
  node->quoted = true;
  return node;
}

/* ---- limits of size ---- */

static void measure(const brim_yaml *node, size_t *nodes, size_t *bytes)
{
  *nodes += 1;
  *bytes += strlen(node->scalar);
  for (size_t i = 0; i < node->count; i++) measure(node->item[i], nodes, bytes);
}

static bool spend(job *j, const brim_yaml *node)
{
  measure(node, &j->nodes, &j->bytes);
  if (j->bytes <= BRIM_INTERPOLATION_BYTES_MAX && j->nodes <= BRIM_YAML_NODES_MAX) return true;
  fail(j, "makes the configuration larger than %d values or 1 MiB", BRIM_YAML_NODES_MAX);
  return false;
}

/* ---- references ---- */

/* Converts "[0]" and "[a]" to ".0" and ".a"; NULL if the result is not names joined by dots. */
static const char *read_reference(const job *j, const char *text)
{
  brim_text out = {0};
  for (const char *s = text; *s; s++) {
    if (*s == '[' && out.length > 0 && out.s[out.length - 1] != '.') brim_text_add(&out, ".");
    if (*s != '[' && *s != ']') brim_text_add_n(&out, s, 1);
  }
  const char *path = brim_arena_string(j->c->arena, brim_text_str(&out));
  brim_text_release(&out);
  const char *names = path + strspn(path, ".");
  const size_t length = strlen(names);
  const bool good = length > 0 && names[length - 1] != '.' && !strstr(names, "..") && !strpbrk(names, " \t'\"{}$\\=,");
  return good ? path : NULL;
}

/* Returns the path to which ${.x} or ${..x} refers here; NULL if it is above the root. */
static const char *absolute(const job *j, const char *reference)
{
  const size_t up = strspn(reference, ".");
  size_t length = strlen(top(j)->path);
  for (size_t i = 0; i < up; i++) {
    if (length == 0) return NULL;
    while (length > 0 && top(j)->path[--length] != '.') continue;
  }
  if (up == 0) return reference;
  return brim_arena_printf(j->c->arena, "%.*s%s%s", (int)length, top(j)->path, length ? "." : "", reference + up);
}

/* Returns the node at a path, after replacing values on the way; NULL: no node has this path. *failed: a value cannot
 * be replaced. */
static brim_yaml *find_value(job *j, const char *path, bool *failed)
{
  brim_yaml *node = j->c->root;
  for (const char *rest = path; node && *rest;) {
    const size_t length = strcspn(rest, ".");
    const char *name = brim_arena_string_n(j->c->arena, rest, length);
    brim_yaml *child = brim_yaml_get_path(node, name);
    if (!child) child = brim_yaml_get(node, brim_arena_printf(j->c->arena, "+%s", name));
    rest += length + (rest[length] == '.');
    const char *here = brim_arena_string_n(j->c->arena, path, (size_t)(rest - path) - (rest[-1] == '.'));
    *failed = child && (child->kind == BRIM_YAML_SCALAR || !*rest) && !resolve(j, here, child);
    if (*failed) return NULL;
    node = child;
  }
  return node;
}

/* Returns the name of a group's option, for ${group}. */
static brim_yaml *option_of(const job *j, const char *group)
{
  const brim_chosen *chosen = brim_compose_chosen(j->c, group);
  if (chosen && chosen->option) return new_text(j, chosen->resolved ? chosen->resolved : chosen->option);
  return fail(j, "refers to ${%s}, and no option is chosen for a group of that name", group);
}

static brim_yaml *refer(job *j, const char *text)
{
  const char *reference = read_reference(j, text);
  if (!reference) return fail(j, "refers to '%s', which is not a key: write names joined by dots", text);
  if (j->scope == SCOPE_OPTIONS) return option_of(j, reference);
  if (j->scope == SCOPE_ENVIRONMENT)
    return fail(j, "cannot refer to ${%s}, since it chooses a plugin: ${oc.env:...} only", reference);
  const char *path = absolute(j, reference);
  if (!path) return fail(j, "refers to ${%s}, which is above the root", reference);
  bool failed = false;
  const brim_yaml *found = find_value(j, path, &failed);
  if (failed || (!found && brim_compose_is_broken(j->c, path))) return NULL;
  if (!found) {
    const brim_alias *alias = brim_alias_find(path);
    const char *meant = alias ? alias->now : j->schema ? brim_schema_suggest(j->schema, path) : NULL;
    fail(j, "refers to ${%s}, and there is no key '%s'", reference, path);
    if (meant) brim_problem_hint(&j->c->problems, "did you mean '${%s}'?", meant);
    return NULL;
  }
  return spend(j, found) ? brim_yaml_clone(j->c->arena, found) : NULL;
}

/* ---- resolvers ---- */

/* Reads an argument, up to ',' or '}': text with quotes, escapes and interpolations. *null: it is the unquoted word
 * null. */
static bool read_argument(job *j, const char **s, brim_text *out, bool *null)
{
  const char *p = *s + strspn(*s, " \t");
  const char quote = *p == '\'' || *p == '"' ? *p++ : '\0';
  size_t kept = 0; /* without trailing blanks */
  while (*p && (quote ? *p != quote : !strchr(",}", *p))) {
    if (p[0] == '$' && p[1] == '{') {
      const brim_yaml *value = evaluate(j, &p);
      if (!value) return false;
      if (value->kind != BRIM_YAML_SCALAR) {
        fail(j, "puts a map or a list into text");
        return false;
      }
      brim_text_add(out, value->scalar);
      kept = out->length;
      continue;
    }
    if (*p == '\\' && p[1] && strchr(quote ? "'\"" : "\\()[]{}:=, \t", p[1])) p++;
    const bool blank = !quote && strchr(" \t", *p) && p[-1] != '\\';
    brim_text_add_n(out, p++, 1);
    if (!blank) kept = out->length;
  }
  if (out->length > kept) out->s[out->length = kept] = '\0';
  if (quote && *p == quote) p++;
  p += strspn(p, " \t");
  *null = !quote && strcmp(brim_text_str(out), "null") == 0;
  *s = p;
  return true;
}

static brim_yaml *environment(job *j, const char *name, const brim_text *def, bool def_null)
{
  const char *value = name[0] && !strchr(name, '=') ? getenv(name) : NULL;
  if (!value && !def) {
    fail(j, "needs the environment variable '%s', which is not set", name);
    brim_problem_hint(&j->c->problems, "set it, or write ${oc.env:%s,DEFAULT}", name);
    return NULL;
  }
  if (value && !brim_utf8_is_valid(value))
    return fail(j, "needs the environment variable '%s', which is not UTF-8", name);
  brim_yaml *node = new_text(j, value ? value : brim_text_str(def));
  if (!value && def_null) node->quoted = false;
  return spend(j, node) ? node : NULL;
}

static brim_yaml *call(job *j, const char *resolver, const char **s)
{
  brim_text argument[2] = {{0}, {0}};
  bool null[2] = {false, false}, good = true;
  size_t count = 0;
  brim_yaml *out = NULL;
  do {
    ++*s;
    good = count < 2 && read_argument(j, s, &argument[count], &null[count]);
    count++;
  } while (good && **s == ',');
  if (count > 2) {
    fail(j, "calls ${%s:...} with more than a name and a default", resolver);
  } else if (good && **s != '}') {
    fail(j, "holds '${' without its '}'");
  } else if (good && strcmp(resolver, "oc.env") == 0) {
    out = environment(j, brim_text_str(&argument[0]), count == 2 ? &argument[1] : NULL, null[1]);
  } else if (good) {
    fail(j, "calls ${%s:...}, and the only resolver is oc.env", resolver);
    brim_problem_hint(&j->c->problems, "to write it as text, write \\${%s:...}", resolver);
  }
  brim_text_release(&argument[0]);
  brim_text_release(&argument[1]);
  return out;
}

/* ---- text ---- */

/* Returns the value of "${...}" at *s, and advances *s past it; NULL on failure, with a problem added here or by the
 * cause. */
static brim_yaml *evaluate_inside(job *j, const char **s)
{
  brim_text head = {0};
  brim_yaml *out = NULL;
  const char *p = *s + 2;
  p += strspn(p, " \t");
  while (*p && !strchr(":}", *p)) {
    if (p[0] != '$' || p[1] != '{') {
      brim_text_add_n(&head, p++, 1);
      continue;
    }
    const brim_yaml *value = evaluate(j, &p);
    if (value && value->kind != BRIM_YAML_SCALAR) fail(j, "puts a map or a list into text");
    if (!value || value->kind != BRIM_YAML_SCALAR) goto done;
    brim_text_add(&head, value->scalar);
  }
  while (head.length > 0 && strchr(" \t", head.s[head.length - 1])) head.s[--head.length] = '\0';
  if (*p == '}')
    out = refer(j, brim_text_str(&head));
  else if (*p == ':')
    out = call(j, brim_text_str(&head), &p);
  else
    fail(j, "holds '${' without its '}'");
  if (out) *s = p + 1;
done:
  brim_text_release(&head);
  return out;
}

static brim_yaml *evaluate(job *j, const char **s)
{
  if (j->nesting == BRIM_INTERPOLATION_DEPTH_MAX)
    return fail(j, "nests interpolations deeper than %d", BRIM_INTERPOLATION_DEPTH_MAX);
  j->nesting++;
  brim_yaml *out = evaluate_inside(j, s);
  j->nesting--;
  return out;
}

/* Copies text up to the next interpolation, or the end, and undoes the escapes before "${". */
static const char *copy_text(const char *s, brim_text *out)
{
  while (*s) {
    const size_t slashes = strspn(s, "\\");
    if (strncmp(s + slashes, "${", 2) != 0) {
      brim_text_add_n(out, s, slashes ? slashes : 1);
      s += slashes ? slashes : 1;
      continue;
    }
    brim_text_add_n(out, s, slashes / 2);
    s += slashes;
    if (slashes % 2 == 0) return s;
    brim_text_add(out, "${");
    s += 2;
  }
  return s;
}

/* Returns the value of a text: that of its only interpolation, or a concatenation. */
static brim_yaml *value_of(job *j, const char *text)
{
  brim_text out = {0};
  brim_yaml *value = NULL;
  bool missing = false;
  for (const char *s = copy_text(text, &out); *s; s = copy_text(s, &out)) {
    const bool first = s == text;
    value = evaluate(j, &s);
    if (!value || (first && *s == '\0')) goto done;
    if (value->kind != BRIM_YAML_SCALAR) {
      value = fail(j, "puts a map or a list into text");
      goto done;
    }
    missing = missing || brim_yaml_is_missing(value);
    brim_text_add(&out, value->scalar);
  }
  value = new_text(j, missing ? "???" : brim_text_str(&out));
  value->quoted = !missing;
  if (!spend(j, value)) value = NULL;
done:
  brim_text_release(&out);
  return value;
}

/* ---- nodes ---- */

static bool circle(const job *j, size_t first, const char *path)
{
  brim_text text = {0};
  for (size_t i = first; i < j->count; i++) brim_text_printf(&text, "%s -> ", j->stack[i].path);
  brim_problem(&j->c->problems, BRIM_ECONFIG, "interpolations form a cycle: %s%s", brim_text_str(&text), path);
  for (size_t i = first; i < j->count; i++) {
    brim_text_clear(&text);
    brim_yaml_print_origin(&j->stack[i].node->origin, &text);
    brim_problem_hint(&j->c->problems, "%s", brim_text_str(&text));
  }
  brim_text_release(&text);
  return false;
}

/* If the key has a declared type, the type parses the value, quoted or not; otherwise text remains text. */
static void unquote(const job *j, const char *path, brim_yaml *node)
{
  const brim_schema_row *row = j->schema ? brim_schema_find(j->schema, path) : NULL;
  const char *dot = strrchr(path, '.');
  if (!row && dot && j->schema) /* an item of a list */
    row = brim_schema_find(j->schema, brim_arena_string_n(j->c->arena, path, (size_t)(dot - path)));
  if (!row || !node->quoted) return;
  const bool is_text = row->row->type == BRIM_STR || row->row->type == BRIM_PATH;
  node->quoted = false;
  node->quoted = is_text && (brim_yaml_is_null(node) || brim_yaml_is_missing(node));
}

/* Marks a whole subtree as replaced, by the text `from` at `origin`. */
static void mark(brim_yaml *node, const brim_yaml_origin *origin, const char *from)
{
  node->interpolation = BRIM_YAML_RESOLVED;
  node->origin = *origin;
  node->origin.from = from;
  for (size_t i = 0; i < node->count; i++) mark(node->item[i], origin, from);
}

static bool replace(job *j, const char *path, brim_yaml *node)
{
  const brim_yaml_origin origin = node->origin;
  const char *from = node->scalar;
  const int key_line = node->key_line, key_column = node->key_column;
  brim_yaml *value = value_of(j, node->scalar);
  if (!value) {
    node->interpolation = BRIM_YAML_FAILED;
    return false;
  }
  mark(value, &origin, from);
  *node = *value;
  node->key_line = key_line;
  node->key_column = key_column;
  if (node->kind == BRIM_YAML_SCALAR) unquote(j, path, node);
  return true;
}

static bool resolve_scalar(job *j, const char *path, brim_yaml *node)
{
  if (node->interpolation == BRIM_YAML_FAILED) return false;
  if (node->interpolation == BRIM_YAML_RESOLVED || !strstr(node->scalar, "${")) return true;
  for (size_t i = 0; i < j->count; i++)
    if (j->stack[i].node == node) return circle(j, i, path);
  if (j->count == BRIM_INTERPOLATION_DEPTH_MAX) {
    fail(j, "is in a chain of more than %d interpolations", BRIM_INTERPOLATION_DEPTH_MAX);
    return false;
  }
  j->stack[j->count++] = (struct under_way){path, node};
  const bool done = replace(j, path, node);
  j->count--;
  return done;
}

/* Replaces the interpolations in a node; `path` is without the '+' of added keys. */
static bool resolve(job *j, const char *path, brim_yaml *node)
{
  if (node->kind == BRIM_YAML_SCALAR) return resolve_scalar(j, path, node);
  bool good = true;
  for (size_t i = 0; i < node->count; i++) {
    const char *name = node->kind == BRIM_YAML_MAP ? node->key[i] + (node->key[i][0] == '+')
                                                   : brim_arena_printf(j->c->arena, "%zu", i);
    const char *full = path[0] ? brim_arena_printf(j->c->arena, "%s.%s", path, name) : name;
    good = resolve(j, full, node->item[i]) && good;
  }
  return good;
}

static int depth_of(const brim_yaml *node)
{
  int deepest = 0;
  for (size_t i = 0; i < node->count; i++) {
    const int below = depth_of(node->item[i]);
    deepest = below > deepest ? below : deepest;
  }
  return deepest + (node->kind != BRIM_YAML_SCALAR);
}

void brim_interpolate(brim_composition *c, const brim_schema *schema)
{
  job j = {.c = c, .schema = schema};
  resolve(&j, "", c->root);
  if (depth_of(c->root) > BRIM_YAML_DEPTH_MAX)
    brim_problem(&c->problems, BRIM_ECONFIG, "interpolations nest maps and lists deeper than %d", BRIM_YAML_DEPTH_MAX);
}

bool brim_interpolate_early(brim_composition *c, const char *path, brim_yaml *node)
{
  job j = {.c = c, .scope = SCOPE_ENVIRONMENT};
  return resolve(&j, path, node);
}

const char *brim_interpolate_option(brim_composition *c, const char *text, brim_yaml_origin origin)
{
  job j = {.c = c, .scope = SCOPE_OPTIONS};
  brim_yaml *node = brim_yaml_scalar(c->arena, text, origin);
  return resolve(&j, text, node) && node->kind == BRIM_YAML_SCALAR ? node->scalar : NULL;
}

const char *brim_interpolation_escape(brim_arena *arena, const char *text)
{
  brim_text out = {0};
  while (*text) {
    const size_t slashes = strspn(text, "\\");
    const bool escape = strncmp(text + slashes, "${", 2) == 0;
    for (size_t i = 0; i < (escape ? 2 * slashes + 1 : slashes); i++) brim_text_add(&out, "\\");
    text += slashes;
    const size_t length = escape ? 2 : *text ? 1 : 0;
    brim_text_add_n(&out, text, length);
    text += length;
  }
  const char *escaped = brim_arena_string(arena, brim_text_str(&out));
  brim_text_release(&out);
  return escaped;
}

void brim_interpolation_escape_all(brim_arena *arena, brim_yaml *node)
{
  if (strstr(node->scalar, "${")) node->scalar = brim_interpolation_escape(arena, node->scalar);
  for (size_t i = 0; i < node->count; i++) brim_interpolation_escape_all(arena, node->item[i]);
}
