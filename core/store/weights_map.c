/* Matches names against the rules of a map. See weights_map.h; weights_map_read.c reads maps. */
#include "store/weights_map.h"

#include <string.h>

#include "base/text.h"

typedef struct part {
  const char *s;
  size_t length;
} part;

/* Writes the text that each wildcard matches to `found`; each matches as little as possible. */
static bool match(const char *pattern, const char *name, part *found)
{
  for (; *pattern && *pattern != '*'; pattern++, name++)
    if (*pattern != *name) return false;
  if (!*pattern) return !*name;
  const bool any = pattern[1] == '*';
  for (size_t length = 0;; length++) {
    if ((any || length > 0) && match(pattern + 1 + any, name + length, found + 1)) {
      *found = (part){name, length};
      return true;
    }
    if (!name[length] || (!any && name[length] == '.')) return false;
  }
}

static bool matches(const char *pattern, const char *name, part found[BRIM_WEIGHTS_WILDCARDS_MAX + 1])
{
  return strnlen(name, BRIM_WEIGHTS_NAME_BYTES_MAX + 1) <= BRIM_WEIGHTS_NAME_BYTES_MAX && match(pattern, name, found);
}

static const char *fill(brim_arena *arena, const char *pattern, const part *found)
{
  brim_text text = {0};
  while (*pattern) {
    const size_t plain = strcspn(pattern, "*");
    brim_text_add_n(&text, pattern, plain);
    pattern += plain;
    if (!*pattern) break;
    brim_text_add_n(&text, found->s, found->length);
    found++;
    pattern += pattern[1] == '*' ? 2 : 1;
  }
  const char *out = brim_arena_string(arena, brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

brim_weights_way brim_weights_map_to_model(const brim_weights_map *map, brim_arena *arena, const char *name)
{
  part found[BRIM_WEIGHTS_WILDCARDS_MAX + 1];
  for (size_t i = 0; map && i < map->rule_count; i++) {
    const brim_weights_rule *r = &map->rule[i];
    if (!matches(r->from, name, found)) continue;
    return (brim_weights_way){.name = r->to ? fill(arena, r->to, found) : NULL,
                              .same_as = r->same_as ? fill(arena, r->same_as, found) : NULL,
                              .transpose = r->transpose,
                              .optional = r->optional,
                              .heads = r->heads,
                              .add = r->add};
  }
  return (brim_weights_way){.name = name};
}

brim_weights_way brim_weights_map_to_file(const brim_weights_map *map, brim_arena *arena, const char *name)
{
  part found[BRIM_WEIGHTS_WILDCARDS_MAX + 1];
  for (size_t i = 0; map && i < map->rule_count; i++) {
    const brim_weights_rule *r = &map->rule[i];
    if (r->to && matches(r->to, name, found))
      return (brim_weights_way){
          .name = fill(arena, r->from, found), .transpose = r->transpose, .heads = r->heads, .add = r->add};
  }
  return (brim_weights_way){.name = name};
}

bool brim_weights_map_recognises(const brim_weights_map *map, const char *const *name, size_t count)
{
  part found[BRIM_WEIGHTS_WILDCARDS_MAX + 1];
  for (size_t k = 0; k < map->recognise_count; k++) {
    size_t i = 0;
    while (i < count && !matches(map->recognise[k], name[i], found)) i++;
    if (i == count) return false;
  }
  return map->recognise_count > 0;
}

bool brim_weights_map_is_for(const brim_weights_map *map, const char *architecture)
{
  for (size_t i = 0; i < map->gguf_count; i++)
    if (strcmp(map->gguf[i], architecture) == 0) return true;
  return false;
}
