/* Writes a tree as YAML: maps and lists in block style, lists of scalars in brackets; scalars are plain if that is safe
 * anywhere in a document, else in double quotes with escapes. */
#include <string.h>

#include "base/utf8.h"
#include "param/yaml.h"

/* Stricter than YAML, so that the text is plain in block and flow context and as a key. */
static bool plain_is_safe(const char *s)
{
  static const char inside[] = "_./+-~()@%*=^:";
  if (s[0] == '\0' || s[strspn(s, "-.")] == '\0') return s[0] == '.' && s[1] == '\0';
  if (strncmp(s, "---", 3) == 0 || strncmp(s, "...", 3) == 0) return false;
  for (size_t i = 0; s[i]; i++) {
    const char c = s[i];
    const bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alnum) continue;
    if (!strchr(inside, c)) return false;
    if (i == 0 && !strchr("_./+-~(", c)) return false;
    if (c == ':' && (s[i + 1] == '\0' || strchr(inside, s[i + 1]))) return false;
  }
  return true;
}

static void print_quoted(const char *s, brim_text *out)
{
  const char *end = s + strlen(s);
  brim_text_add(out, "\"");
  while (s < end) {
    const char *start = s;
    const int32_t c = brim_utf8_next(&s, end);
    if (c < 0) { /* such a character cannot come from a document; this keeps the output valid */
      brim_text_printf(out, "\\x%02x", (unsigned)(unsigned char)*s++);
    } else if (c == '"' || c == '\\') {
      brim_text_printf(out, "\\%c", (char)c);
    } else if (c == '\n' || c == '\t') {
      brim_text_add(out, c == '\n' ? "\\n" : "\\t");
    } else if (brim_utf8_is_break(c) || !brim_utf8_is_yaml(c)) {
      brim_text_printf(out, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c);
    } else {
      brim_text_add_n(out, start, (size_t)(s - start));
    }
  }
  brim_text_add(out, "\"");
}

static void print_text(const char *s, bool quoted, brim_text *out)
{
  if (!quoted && plain_is_safe(s))
    brim_text_add(out, s);
  else
    print_quoted(s, out);
}

static void print_scalar(const brim_yaml *node, brim_text *out)
{
  if (brim_yaml_is_null(node) || brim_yaml_is_missing(node))
    brim_text_add(out, brim_yaml_is_null(node) ? "null" : "???");
  else
    print_text(node->scalar, node->quoted, out);
}

/* Whether a node fits on the line of its key: a scalar, an empty container, or a list of scalars. libyaml rejects a
 * plain ??? in brackets. */
static bool is_inline(const brim_yaml *node)
{
  if (node->kind == BRIM_YAML_MAP) return node->count == 0;
  for (size_t i = 0; i < node->count; i++)
    if (node->item[i]->kind != BRIM_YAML_SCALAR || brim_yaml_is_missing(node->item[i])) return false;
  return true;
}

static void print_inline(const brim_yaml *node, brim_text *out)
{
  if (node->kind == BRIM_YAML_SCALAR) {
    print_scalar(node, out);
  } else if (node->kind == BRIM_YAML_MAP) {
    brim_text_add(out, "{}");
  } else {
    brim_text_add(out, "[");
    for (size_t i = 0; i < node->count; i++) {
      if (i) brim_text_add(out, ", ");
      print_scalar(node->item[i], out);
    }
    brim_text_add(out, "]");
  }
}

/* Prints the comment; characters that could end the line or that YAML does not allow become '?'. */
static void print_comment(const brim_yaml_origin *origin, brim_text *out)
{
  brim_text where = {0};
  brim_yaml_print_origin(origin, &where);
  const char *s = brim_text_str(&where), *end = s + where.length;
  brim_text_add(out, "  # ");
  while (s < end) {
    const char *start = s;
    const int32_t c = brim_utf8_next(&s, end);
    if (c < 0) s++;
    if (c < 0 || brim_utf8_is_break(c) || !brim_utf8_is_yaml(c))
      brim_text_add(out, "?");
    else
      brim_text_add_n(out, start, (size_t)(s - start));
  }
  brim_text_release(&where);
}

/* Prints a container's entries at `indent`; `continued`: the current line already has text. */
static void print_block(const brim_yaml *node, int indent, bool continued, bool origins, brim_text *out)
{
  for (size_t i = 0; i < node->count; i++) {
    const brim_yaml *child = node->item[i];
    if (i || !continued) brim_text_printf(out, "%*s", indent, "");
    if (node->kind == BRIM_YAML_MAP) {
      print_text(node->key[i], false, out);
      brim_text_add(out, ":");
    } else {
      brim_text_add(out, "-");
    }
    if (is_inline(child)) {
      brim_text_add(out, " ");
      print_inline(child, out);
      if (brim_yaml_is_missing(child)) brim_text_add(out, "  # mandatory: it has no value yet");
      if (origins) print_comment(&child->origin, out);
      brim_text_add(out, "\n");
    } else if (node->kind == BRIM_YAML_MAP) {
      brim_text_add(out, "\n");
      print_block(child, indent + 2, false, origins, out);
    } else {
      brim_text_add(out, " ");
      print_block(child, indent + 2, true, origins, out);
    }
  }
}

void brim_yaml_print(const brim_yaml *node, brim_text *out, bool origins)
{
  if (!is_inline(node)) {
    print_block(node, 0, false, origins, out);
    return;
  }
  print_inline(node, out);
  if (origins) print_comment(&node->origin, out);
  brim_text_add(out, "\n");
}
