/* Shows the environment of the run's processes: host, versions, command lines. A table has a column for each process
 * whose values differ from those of the process before it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"

#define COLUMNS_MAX 4 /* most columns: the first processes and the last one */

static const char *join_words(brim_arena *arena, const json_t *words)
{
  size_t i;
  json_t *word;
  brim_text all = {0};
  json_array_foreach((json_t *)words, i, word)
  {
    const char *s = json_string_value(word) ? json_string_value(word) : "";
    const bool is_plain = s[0] && strcspn(s, " \t'\"\\$`*?[]{}()<>|&;!~#\n") == strlen(s);
    brim_text_printf(&all, is_plain ? "%s%s" : "%s'%s'", i ? " " : "", s);
  }
  const char *out = brim_arena_string(arena, brim_text_str(&all));
  brim_text_release(&all);
  return out;
}

/* Joins the pairs of an object: "dnnl 2.6, yaml 0.2". */
static const char *join_pairs(brim_arena *arena, const json_t *object, const char *between)
{
  const char *key;
  json_t *value;
  brim_text all = {0};
  json_object_foreach((json_t *)object, key, value)
  {
    if (json_is_string(value))
      brim_text_printf(&all, "%s%s%s%s", all.length ? ", " : "", key, between, json_string_value(value));
  }
  const char *out = brim_arena_string(arena, brim_text_str(&all));
  brim_text_release(&all);
  return out;
}

static const char *processors_of(brim_arena *arena, const json_t *here)
{
  char bytes[32];
  const double count = brim_json_number(here, "processors");
  return brim_arena_printf(
      arena, "%s%s%.15g, %s of memory", brim_json_string(here, "processor"),
      brim_json_string(here, "processor")[0] ? ", processors: " : "processors: ", isfinite(count) ? count : 0,
      brim_figure_bytes(bytes, sizeof bytes, brim_json_number(here, "memory_bytes")));
}

static const char *device_of(brim_arena *arena, const json_t *here)
{
  const double ranks = brim_json_number(here, "ranks");
  return brim_arena_printf(arena, "%s (%s)%s", brim_json_string(here, "device"), brim_json_string(here, "device_name"),
                           ranks > 1 ? brim_arena_printf(arena, ", %.0f ranks", ranks) : "");
}

static const char *time_of(brim_arena *arena, const json_t *here)
{
  char time[32];
  return brim_arena_printf(arena, "%s UTC, process %.15g",
                           brim_page_format_time(time, sizeof time, brim_json_number(here, "time")),
                           brim_json_number(here, "pid"));
}

static const char *commit_of(brim_arena *arena, const json_t *here)
{
  const char *commit = brim_json_string(here, "commit"), *branch = brim_json_string(here, "branch");
  if (!commit[0]) return "";
  return brim_arena_printf(arena, "%s%s%s", commit, branch[0] ? ", branch " : "", branch);
}

static const char *version_of(brim_arena *arena, const json_t *here)
{
  const char *compiler = brim_json_string(here, "compiler");
  return brim_arena_printf(arena, "%s%s%s", brim_json_string(here, "version"), compiler[0] ? ", compiled by " : "",
                           compiler);
}

static const char *system_of(brim_arena *arena, const json_t *here)
{
  const char *kernel = brim_json_string(here, "kernel");
  return brim_arena_printf(arena, "%s%s%s", brim_json_string(here, "system"), kernel[0] ? ", Linux " : "", kernel);
}

static const char *host_of(brim_arena *arena, const json_t *here)
{
  (void)arena;
  return brim_json_string(here, "host");
}

static const char *folder_of(brim_arena *arena, const json_t *here)
{
  (void)arena;
  return brim_json_string(here, "folder");
}

static const char *driver_of(brim_arena *arena, const json_t *here)
{
  (void)arena;
  return brim_json_string(here, "driver");
}

static const char *command_of(brim_arena *arena, const json_t *here)
{
  return join_words(arena, json_object_get(here, "command"));
}

static const char *variables_of(brim_arena *arena, const json_t *here)
{
  return join_pairs(arena, json_object_get(here, "variables"), "=");
}

static const char *libraries_of(brim_arena *arena, const json_t *here)
{
  return join_pairs(arena, json_object_get(here, "libraries"), " ");
}

static const struct {
  const char *name;
  const char *(*value)(brim_arena *, const json_t *);
} rows[] = {{"started", time_of},          {"command", command_of},
            {"working folder", folder_of}, {"its commit", commit_of},
            {"variables", variables_of},   {"host", host_of},
            {"system", system_of},         {"host's processor", processors_of},
            {"device", device_of},         {"driver", driver_of},
            {"libraries", libraries_of},   {"brim", version_of}};

void brim_page_environment(const brim_page_run *page, brim_text *out)
{
  brim_arena *arena = &page->all->arena;
  const size_t all = json_array_size(page->environment), shown = all < COLUMNS_MAX ? all : COLUMNS_MAX;
  if (all == 0) return;
  brim_page_begin(out, "Environment");
  if (shown < all) brim_text_printf(out, "<p>The first %zu and the last of %zu processes.</p>\n", shown - 1, all);
  brim_text_add(out, "<div class=\"wide\"><table class=\"pairs\">\n<tbody>\n");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *before = "";
    for (size_t k = 0; k < shown; k++) {
      const json_t *here = json_array_get(page->environment, k + 1 < shown ? k : all - 1);
      const char *value = rows[i].value(arena, here);
      if (!value[0] || strcmp(value, before) == 0) continue; /* the value is that of the process before */
      before = value;
      brim_text_add(out, "<tr><th scope=\"row\">");
      brim_svg_escape(out, rows[i].name);
      if (k > 0) brim_text_printf(out, ", process %zu", k + 1 < shown ? k + 1 : all);
      brim_text_add(out, "</th><td>");
      brim_svg_escape(out, value);
      brim_text_add(out, "</td></tr>\n");
    }
  }
  brim_text_add(out, "</tbody>\n</table></div>\n");
  brim_page_end(out);
}
