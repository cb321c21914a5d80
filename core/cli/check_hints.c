/* What to do about what `brim check` has found, or was given. See check.h. */
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/check.h"

#define FILES_MAX 8      /* that are told */
#define LOOKED_MAX 20000 /* files of a folder that are looked at */

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
      brim_text_printf(out, "\n  brim check %s", e->fts_path);
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
    (void)brim_fail(BRIM_ECONFIG, "'%s' is a folder: brim check takes a plugin's file, of which there %s%s", folder,
                    count == 1 ? "is" : "are", brim_text_str(&files));
  else
    (void)brim_fail(BRIM_ECONFIG,
                    "'%s' is a folder, and no plugin's file (*.so) is in it: is it built?\n"
                    "brim check takes a plugin's file: brim check mine.so",
                    folder);
  brim_text_release(&files);
  return BRIM_ECONFIG;
}

/* ---- findings ---- */

/* Of "mine.so+0x11b4", as base/crash.h tells places, or ", at 0x11b4 of the file", as its handler does. */
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
