/* See find.h. */
#include "report/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/rundir.h"

static void add(brim_arena *arena, brim_found_list *out, const char *prefix, const char *name, int error)
{
  BRIM_ARENA_GROW(arena, out->item, out->count, out->room);
  const char *full = prefix[0] ? brim_arena_printf(arena, "%s/%s", prefix, name) : brim_arena_string(arena, name);
  out->item[out->count++] = (brim_found){full, error};
}

static bool is_folder(int parent, const struct dirent *entry)
{
  struct stat info;
  if (entry->d_name[0] == '.') return false;
  if (entry->d_type != DT_UNKNOWN) return entry->d_type == DT_DIR;
  return fstatat(parent, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/* Searches an open folder, and closes it. */
static void search(brim_arena *arena, int fd, const char *prefix, int depth, brim_found_list *out)
{
  DIR *folder = fdopendir(fd);
  if (!folder) {
    close(fd);
    return;
  }
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const char *name = entry->d_name;
    if (!is_folder(fd, entry)) continue;
    if (brim_is_run(fd, name, 0)) {
      add(arena, out, prefix, name, 0);
    } else if (errno == EACCES) {
      add(arena, out, prefix, name, EACCES);
    } else if (depth < BRIM_FIND_DEPTH_MAX) {
      const int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (below >= 0)
        search(arena, below,
               prefix[0] ? brim_arena_printf(arena, "%s/%s", prefix, name) : brim_arena_string(arena, name), depth + 1,
               out);
      else if (errno == EACCES)
        add(arena, out, prefix, name, EACCES);
    }
  }
  closedir(folder);
}

static size_t digits(const char *s)
{
  return strspn(s, "0123456789");
}

int brim_find_order(const char *a, const char *b)
{
  while (*a && *b) {
    const size_t n = digits(a), m = digits(b);
    if (n > 0 && m > 0 && n != m && a[0] != '0' && b[0] != '0') return n < m ? -1 : 1;
    const size_t same = n > 0 && n == m ? n : 1;
    const int order = strncmp(a, b, same);
    if (order != 0) return order;
    a += same;
    b += same;
  }
  return (unsigned char)*a - (unsigned char)*b;
}

static int by_name(const void *left, const void *right)
{
  return brim_find_order(((const brim_found *)left)->name, ((const brim_found *)right)->name);
}

brim_status brim_find_runs(brim_arena *arena, const char *folder, brim_found_list *out)
{
  *out = (brim_found_list){0};
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", folder, strerror(errno));
  search(arena, fd, "", 0, out);
  if (out->count > 1) qsort(out->item, out->count, sizeof *out->item, by_name);
  return BRIM_OK;
}
