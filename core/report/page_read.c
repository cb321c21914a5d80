/* Reads the data of a run's own page from its folder. brim does not trust the files: they may be missing, damaged, or
 * written by anyone. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "graph/pieces.h"
#include "report/page_parts.h"
#include "store/rundir.h"
#include "store/summary.h"

#define TEXT_BYTES_MAX (1 << 20) /* limit for a file that is shown verbatim */

FILE *brim_page_open(brim_page_run *page, const char *name)
{
  char path[BRIM_PATH_MAX];
  if (brim_path_join(path, page->run->dir, name) != BRIM_OK) return NULL;
  FILE *file = brim_fopen_to_read(path);
  if (!file && errno != ENOENT) brim_text_printf(&page->notes, "cannot read %s: %s\n", name, brim_open_reason(errno));
  return file;
}

/* Returns NULL if the file is missing, or, with a note, if it is damaged. */
static json_t *read_object(brim_page_run *page, const char *name)
{
  json_error_t error;
  struct stat info;
  FILE *file = brim_page_open(page, name);
  if (!file) return NULL;
  const bool is_large = fstat(fileno(file), &info) == 0 && info.st_size > BRIM_SUMMARY_BYTES_MAX;
  json_t *root = is_large ? NULL : json_loadf(file, 0, &error);
  fclose(file);
  if (is_large)
    brim_text_printf(&page->notes, "%s is larger than %lld MiB and was not read\n", name,
                     (long long)BRIM_SUMMARY_BYTES_MAX >> 20);
  else if (!root)
    brim_text_printf(&page->notes, "%s is not JSON: line %d: %s\n", name, error.line, error.text);
  if (!root || json_is_object(root)) return root;
  brim_text_printf(&page->notes, "%s is not a JSON object\n", name);
  json_decref(root);
  return NULL;
}

/* Reads the lines of a file that are objects with a text `key`. */
static json_t *read_lines(brim_page_run *page, const char *name, const char *key)
{
  char *line = NULL;
  size_t room = 0;
  json_t *all = json_array();
  FILE *file = brim_page_open(page, name);
  for (ssize_t length; file && (length = getline(&line, &room, file)) >= 0;) {
    json_t *one = json_loadb(line, (size_t)length, 0, NULL);
    if (json_is_string(json_object_get(one, key)))
      json_array_append_new(all, one);
    else
      json_decref(one);
  }
  free(line);
  if (file) fclose(file);
  return all;
}

/* The events determine the state, because a summary may be that of an earlier process. */
static enum brim_page_state find_state(const brim_page_run *page)
{
  static const char *const begins[] = {"started", "resumed"}, *const ends[] = {"finished", "interrupted", "failed"};
  bool has_begun = false, has_ended = true;
  size_t index;
  json_t *event;
  json_array_foreach(page->events, index, event)
  {
    const char *kind = brim_json_string(event, "event");
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
      if (strcmp(kind, begins[i]) == 0) has_begun = true, has_ended = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
      if (strcmp(kind, ends[i]) == 0) has_ended = true;
  }
  if (!has_begun || has_ended) return BRIM_PAGE_ENDED;
  return brim_run_is_open(page->run->dir) ? BRIM_PAGE_RUNNING : BRIM_PAGE_LOST;
}

static const char *read_text(brim_page_run *page, const char *name)
{
  static const char more[] = "...\n";
  FILE *file = brim_page_open(page, name);
  if (!file) return NULL;
  char *text = brim_xcalloc(1, TEXT_BYTES_MAX + sizeof more);
  const size_t bytes = fread(text, 1, TEXT_BYTES_MAX, file);
  if (bytes == TEXT_BYTES_MAX) memcpy(text + bytes, more, sizeof more);
  fclose(file);
  const char *out = brim_arena_string(&page->all->arena, text);
  free(text);
  return out;
}

void brim_page_read(brim_comparison *all, brim_compared *run, const brim_page_live *live, brim_page_run *out)
{
  *out = (brim_page_run){.all = all, .run = run, .live = live};
  out->events = read_lines(out, "events.jsonl", "event");
  out->state = find_state(out);
  if (out->state == BRIM_PAGE_ENDED)
    out->summary = read_object(out, "summary.json");
  else
    brim_compare_summarize(run);
  out->plan = read_object(out, "plan.json");
  out->plugins = read_object(out, "plugins.json");
  out->buffers = read_object(out, BRIM_PIECES_NAME);
  out->samples = read_object(out, "samples.json");
  out->operations = read_object(out, "operations.json");
  out->environment = read_lines(out, "environment.jsonl", "host");
  brim_page_read_processes(out);
  out->config = read_text(out, "config.yaml");
  out->overrides = read_text(out, "overrides.yaml");
  out->clients = brim_page_read_clients(out);
}

void brim_page_release(brim_page_run *page)
{
  json_decref(page->summary);
  json_decref(page->plan);
  json_decref(page->plugins);
  json_decref(page->samples);
  json_decref(page->events);
  json_decref(page->environment);
  json_decref(page->operations);
  json_decref(page->buffers);
  brim_text_release(&page->notes);
}
