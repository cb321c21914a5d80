/* Finds the files of a text. See text_files.h. */
#include "text_files.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "brim/host.h"
#include "cache.h"

#define NAME_ROOM 4096

static brim_status add(text_files *f, const char *name)
{
  uint64_t bytes = 0;
  char **grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(f->name, (f->count + 1) * sizeof *grown);
  if (grown) f->name = grown;
  uint64_t *sizes = grown ? realloc(f->size, (f->count + 1) * sizeof *sizes) : NULL;
  if (sizes) f->size = sizes;
  char *copy = sizes && cache_key_add_file(&f->key, name, &bytes, NULL) ? strdup(name) : NULL;
  if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the name of '%s'", name);
  f->bytes += bytes;
  f->size[f->count] = bytes;
  f->name[f->count++] = copy;
  return BRIM_OK;
}

static brim_status add_matching(text_files *f, const char *folder, const char *pattern)
{
  struct dirent **entry = NULL;
  brim_status status = BRIM_OK;
  const int count = scandir(folder, &entry, NULL, alphasort);
  if (count < 0) return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", folder, strerror(errno));
  for (int i = 0; i < count; i++) {
    char name[NAME_ROOM];
    struct stat st;
    const int length = snprintf(name, sizeof name, "%s/%s", folder, entry[i]->d_name);
    if (status == BRIM_OK && length < (int)sizeof name && fnmatch(pattern, entry[i]->d_name, FNM_PERIOD) == 0 &&
        stat(name, &st) == 0 && S_ISREG(st.st_mode))
      status = add(f, name);
    free(entry[i]);
  }
  free(entry);
  return status;
}

brim_status text_files_find(const char *path, const char *pattern, const char *option, text_files *out)
{
  struct stat st;
  *out = (text_files){.key = CACHE_KEY_START};
  if (stat(path, &st) != 0)
    return brim_fail(BRIM_ELOAD, "cannot find the text '%s': %s\nset %s to a file or to a folder of files", path,
                     strerror(errno), option);
  brim_status status = BRIM_OK;
  if (S_ISREG(st.st_mode))
    status = add(out, path);
  else if (S_ISDIR(st.st_mode))
    status = add_matching(out, path, pattern);
  else
    return brim_fail(BRIM_ELOAD, "'%s' is neither a file nor a folder", path);
  if (status == BRIM_OK && out->count == 0)
    status = brim_fail(BRIM_ELOAD, "no file '%s' in '%s'\n%s names the folder, dataset.files its files", pattern, path,
                       option);
  if (status != BRIM_OK) text_files_free(out);
  return status;
}

void text_files_free(text_files *files)
{
  for (size_t i = 0; i < files->count; i++) free(files->name[i]);
  free(files->name);
  free(files->size);
  *files = (text_files){0};
}
