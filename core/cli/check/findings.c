/* The findings of checks: prints them, makes the configuration of a check, which may fail because of the user's words,
 * and gives advice. See check.h. */
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/check/check.h"
#include "config/compose.h"

#define FILES_MAX 16     /* most files that are listed */
#define LOOKED_MAX 20000 /* limit for files of a folder that are inspected */

const brim_finding_name brim_finding_names[] = {
    [BRIM_FOUND_OK] = {"ok", "ok"},
    [BRIM_FOUND_WARNING] = {"warning", "warning"},
    [BRIM_FOUND_FAILED] = {"failed", "failed"},
    [BRIM_FOUND_UNTRIED] = {"untried", "warning"},
    [BRIM_FOUND_WORDS] = {"words", "warning"},
};

enum brim_finding brim_check_say(brim_check *c, enum brim_finding finding, const char *format, ...)
{
  char text[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  brim_text_clear(&c->text);
  brim_text_add(&c->text, text);
  return finding;
}

enum brim_finding brim_check_error(brim_check *c, const char *what)
{
  return brim_check_say(c, BRIM_FOUND_FAILED, "%s: %s", what, brim_error_text());
}

enum brim_finding brim_check_fail_short(brim_check *c, const char *what)
{
  const char *text = brim_error_text();
  return brim_check_say(c, BRIM_FOUND_FAILED, "%s%s%.*s", what, what[0] ? ": " : "", (int)strcspn(text, "\n"), text);
}

enum brim_finding brim_check_words(brim_check *c, const char *error, enum brim_finding finding)
{
  return c->blames_words ? brim_check_say(c, BRIM_FOUND_WORDS, "%s", error) : finding;
}

enum brim_finding brim_check_blame(brim_check *c, bool refused)
{
  const enum brim_finding finding = brim_check_say(c, BRIM_FOUND_FAILED, "%s", brim_error_text());
  return refused ? brim_check_words(c, brim_error_text(), finding) : finding;
}

/* Uses the first `words` of the user's words. */
static brim_status configure(const brim_check *c, const char *const *word, const char *further, size_t words,
                             brim_config **out)
{
  brim_arena arena = {0};
  const char *group = brim_config_group_of(c->plugin->kind);
  size_t n = 0, given = 0;
  while (word[given]) given++;
  const char **all = BRIM_ARENA_NEW(&arena, const char *, given + words + 2);
  int *number = BRIM_ARENA_NEW(&arena, int, given + words + 2);
  all[n++] = brim_arena_printf(&arena, brim_compose_is_list(group) ? "%s=[%s]" : "%s=%s", group, c->plugin->id);
  for (size_t i = 0; i < given; i++) all[n++] = word[i];
  if (further) all[n++] = further;
  for (size_t i = 0; i < words; i++) {
    number[n] = (int)i + 2; /* after the file */
    all[n++] = c->word[i];
  }
  const brim_status status = brim_cli_config(c->cli, NULL, all, number, n, out);
  brim_arena_release(&arena);
  return status;
}

/* After a configuration with the user's words failed: whether the error names one of these words, or disappears without
 * them. */
static bool blames_words(const brim_check *c, const char *const *word, const char *further)
{
  brim_error error;
  brim_config *config = NULL;
  if (c->words == 0) return false;
  if (strstr(brim_error_text(), "command line, argument ")) return true;
  brim_error_take(&error);
  const brim_status without = configure(c, word, further, 0, &config);
  brim_config_free(config);
  brim_error_put(&error);
  return without == BRIM_OK;
}

brim_status brim_check_config(brim_check *c, const char *const *word, const char *further, brim_config **out)
{
  const brim_status status = configure(c, word, further, c->words, out);
  c->blames_words = status == BRIM_ECONFIG && blames_words(c, word, further);
  return status;
}

/* ---- folders ---- */

static int compare(const FTSENT **a, const FTSENT **b)
{
  return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int list_plugins(const char *folder, brim_text *out)
{
  char *path = brim_xstrdup(folder);
  int count = 0, looked = 0;
  FTS *walk = fts_open((char *const[]){path, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, compare);
  for (FTSENT *e = walk ? fts_read(walk) : NULL; e && looked++ < LOOKED_MAX; e = fts_read(walk)) {
    const bool is_file = e->fts_info == FTS_F || e->fts_info == FTS_SL;
    if (is_file && brim_ends_with(e->fts_name, ".so") && count++ < FILES_MAX)
      brim_text_printf(out, "\n  brim check %s", BRIM_QUOTED(e->fts_path));
  }
  if (walk) fts_close(walk);
  free(path);
  return count;
}

brim_status brim_check_fail_folder(const char *folder)
{
  brim_text files = {0};
  const int count = list_plugins(folder, &files);
  if (count > FILES_MAX) brim_text_printf(&files, "\n  and %d others", count - FILES_MAX);
  if (count > 0)
    (void)brim_fail(BRIM_ECONFIG, "'%s' is a folder, but brim check takes the file of a plugin. The folder has:%s",
                    folder, brim_text_str(&files));
  else
    (void)brim_fail(BRIM_ECONFIG,
                    "'%s' is a folder, and no plugin's file (*.so) is in it: is it built?\n"
                    "brim check takes a plugin's file: brim check mine.so",
                    folder);
  brim_text_release(&files);
  return BRIM_ECONFIG;
}

/* ---- findings ---- */

/* Parses "mine.so+0x11b4", the form in which base/crash.h prints places, or ", at 0x11b4 of the file", the form of its
 * handler. */
static const char *find_place(const char *file, const char *text)
{
  char in[BRIM_PATH_MAX];
  const char *slash = strrchr(file, '/'), *at = ", at 0x";
  snprintf(in, sizeof in, "%s+0x", slash ? slash + 1 : file);
  const char *place = strstr(text, in), *other = strstr(text, at);
  return place ? place + strlen(in) : other ? other + strlen(at) : NULL;
}

static void hint_place(const char *file, const char *text, brim_text *out)
{
  const char *place = find_place(file, text);
  if (!place) return;
  brim_text_add(out, "\nits line, if it was built with -g: addr2line -f -e ");
  brim_cli_quote((const char *const[]){file, NULL}, out);
  brim_text_printf(out, " 0x%.*s", (int)strspn(place, "0123456789abcdef"), place);
}

void brim_check_hint(const char *file, const char *check, const char *text, brim_text *out)
{
  hint_place(file, text, out);
  if (strcmp(check, "table") == 0 && brim_starts_with(text, "crashed"))
    brim_text_add(out, "\ndoes each table of parameters end in BRIM_PARAMS_END, and each list of plugins in NULL?");
}
