/* Checks that several kinds of plugins share: parameters at the ends of their ranges, and memory leaks. See check.h. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "cli/check/check.h"
#include "config/compose.h"

#define VALUES_MAX 64 /* limit for values of one parameter */

uint64_t brim_check_allocated(void)
{
  const struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

#define LEAK_BYTES 16 /* bytes per repetition; less may belong to the C library */

uint64_t brim_check_kept(uint64_t before)
{
  const uint64_t after = brim_check_allocated(), kept = after > before ? (after - before) / BRIM_CHECK_MANY_TIMES : 0;
  return kept >= LEAK_BYTES ? kept : 0;
}

enum brim_finding brim_check_untried(brim_check *c)
{
  brim_check_say(c, BRIM_FOUND_UNTRIED,
                 "cannot be tried with its defaults: %s\nset the parameters that it needs: key=value",
                 brim_error_text());
  return brim_check_words(c, brim_error_text(), BRIM_FOUND_UNTRIED);
}

enum brim_finding brim_check_created(brim_check *c, uint64_t before)
{
  const uint64_t kept = brim_check_kept(before);
  if (kept > 0)
    return brim_check_say(c, BRIM_FOUND_WARNING, "create and destroy leak %" PRIu64 " bytes each time", kept);
  brim_check_say(c, BRIM_FOUND_OK, "made and destroyed %d times", BRIM_CHECK_WARM_TIMES + BRIM_CHECK_MANY_TIMES);
  return BRIM_FOUND_OK;
}

/* Lists the ends of a range, if they belong to it, and the names, as words: "[1,4096]" "(0,1]" "a|b" "auto|[1,64]". */
static size_t list_values(const brim_param *row, brim_arena *arena, const char **out)
{
  size_t n = 0;
  const char *s = row->range ? row->range : "";
  if (row->type == BRIM_BOOL) {
    out[n++] = "true";
    out[n++] = "false";
  }
  if (row->def) out[n++] = row->def[0] ? row->def : "\"\"";
  while (*s && n + 2 < VALUES_MAX) {
    const size_t length = strcspn(s, "|");
    if (*s != '[' && *s != '(') {
      out[n++] = brim_arena_string_n(arena, s, length);
    } else {
      const size_t comma = strcspn(s, ",");
      if (*s == '[') out[n++] = brim_arena_string_n(arena, s + 1, comma - 1);
      if (length > comma + 2 && s[length - 1] == ']')
        out[n++] = brim_arena_string_n(arena, s + comma + 1, length - comma - 2);
    }
    s += length + (s[length] == '|');
  }
  return n;
}

typedef struct values {
  int tried, refused; /* refused: rejected with a message of the plugin's own */
  char refusal[256];  /* the first one */
} values;

enum brim_check_trial brim_check_tried(brim_check *c, const char *word, brim_status status, bool refused)
{
  if (status == BRIM_OK) return BRIM_TRIAL_DONE;
  if (refused) return BRIM_TRIAL_REFUSED;
  brim_check_error(c, word);
  return BRIM_TRIAL_FAILED;
}

static enum brim_finding try_value(brim_check *c, const char *word, const brim_check_kind *kind, values *t)
{
  const enum brim_check_trial trial = kind->try(c, word);
  if (trial == BRIM_TRIAL_FAILED) return BRIM_FOUND_FAILED;
  if (trial == BRIM_TRIAL_REFUSED && t->refused++ == 0)
    snprintf(t->refusal, sizeof t->refusal, "%.*s", (int)sizeof t->refusal - 1, word);
  t->tried += trial == BRIM_TRIAL_DONE;
  return BRIM_FOUND_OK;
}

enum brim_finding brim_check_parameters(brim_check *c, const brim_check_kind *kind)
{
  values t = {.tried = 0};
  brim_arena arena = {0};
  const char *group = brim_config_group_of(c->plugin->kind);
  const bool is_listed = brim_compose_is_list(group);
  const char *prefix = brim_arena_printf(&arena, is_listed ? "%s.%s" : "%s", group, c->plugin->id);
  enum brim_finding finding = BRIM_FOUND_OK;
  for (const brim_param *row = c->plugin->params; row && row->key && finding == BRIM_FOUND_OK; row++) {
    const char *value[VALUES_MAX];
    const bool is_list = row->type == BRIM_LIST || row->type == BRIM_SET || row->type == BRIM_NAMES;
    const size_t count = list_values(row, &arena, value);
    for (size_t i = 0; i < count && finding == BRIM_FOUND_OK; i++) {
      const char *format = is_list && value[i][0] != '[' ? "%s.%s=[%s]" : "%s.%s=%s";
      finding = try_value(c, brim_arena_printf(&arena, format, prefix, row->key, value[i]), kind, &t);
    }
  }
  if (finding == BRIM_FOUND_OK && t.refused > 0)
    brim_check_say(c, BRIM_FOUND_OK, "values at the ends of their ranges: %d, of which %d are refused, as %s",
                   t.tried + t.refused, t.refused, t.refusal);
  else if (finding == BRIM_FOUND_OK)
    brim_check_say(c, BRIM_FOUND_OK, t.tried > 0 ? "values at the ends of their ranges: %d" : "none", t.tried);
  brim_arena_release(&arena);
  return finding;
}
