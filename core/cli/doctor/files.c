/* Checks folders: the shared one, that of the runs, and the cache. See doctor.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "memory/claims.h"
#include "memory/live.h"

#define DISK_BYTES_MIN (UINT64_C(1) << 30)
#define FILES_MIN 1000
/* The size that Docker gives to a container; Open MPI needs more for many ranks. */
#define SHARED_BYTES_MIN (UINT64_C(64) << 20)

/* ---- the shared folder ---- */

static void look_at_states(brim_doctor *d)
{
  brim_live_entry *entry = brim_arena_alloc(&d->arena, sizeof *entry * BRIM_BOARD_SLOTS);
  size_t count = 0, good = 0;
  char text[BRIM_PATH_MAX + 256];
  if (brim_live_list(entry, &count) != BRIM_OK) {
    brim_doctor_add_error(d, BRIM_FINDING_PROBLEM, "shared folder",
                          "set claims.dir or BRIM_CLAIMS_DIR to another folder of this host");
    return;
  }
  for (size_t i = 0; i < count; i++) {
    good += entry[i].trust == BRIM_LIVE_GOOD;
    if (entry[i].trust == BRIM_LIVE_GOOD) continue;
    brim_doctor_add(d, BRIM_FINDING_WARNING, "shared folder",
                    "if the problem remains, end that process, or choose another claims.dir", "%s",
                    brim_live_trouble(&entry[i], text, sizeof text));
  }
  brim_doctor_add(d, BRIM_FINDING_OK, "shared folder", NULL, "%s, with %zu process%s of brim", brim_shared_folder(),
                  good, good == 1 ? "" : "es");
}

void brim_doctor_shared(brim_doctor *d)
{
  brim_ticket *ticket = NULL;
  size_t count = 0;
  struct statvfs disk;
  char bytes[32];
  if (brim_claims_list(&d->arena, &ticket, &count) != BRIM_OK) {
    brim_doctor_add_error(d, BRIM_FINDING_PROBLEM, "shared folder",
                          "set claims.dir or BRIM_CLAIMS_DIR to another folder of this host");
    return;
  }
  look_at_states(d);
  if (statvfs("/dev/shm", &disk) == 0 && (uint64_t)disk.f_blocks * disk.f_frsize <= SHARED_BYTES_MIN)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "shared memory", "start the container with --shm-size=1g or --ipc=host",
                    "/dev/shm has only %s, which MPI and NCCL may exceed",
                    brim_format_bytes(bytes, sizeof bytes, (uint64_t)disk.f_blocks * disk.f_frsize));
}

/* ---- the folder of the runs ---- */

/* Shortens the path to the part that exists. */
static void find_existing(char *path)
{
  while (access(path, F_OK) != 0) {
    char *slash = strrchr(path, '/');
    if (!slash) {
      path[0] = '.';
      path[1] = '\0';
      return;
    }
    slash[slash == path] = '\0';
    if (slash == path) return;
  }
}

/* A run needs locks that other processes respect, and a rename that replaces a file. */
static const char *try_file_system(const char *folder, char *failed, size_t room)
{
  char path[BRIM_PATH_MAX], other[BRIM_PATH_MAX + 8];
  const char *why = NULL;
  if (snprintf(path, sizeof path, "%s/.brim-doctor-XXXXXX", folder) >= (int)sizeof path) return "its path is too long";
  const int fd = mkstemp(path);
  if (fd < 0) {
    snprintf(failed, room, "cannot write to it: %s", strerror(errno));
    return failed;
  }
  snprintf(other, sizeof other, "%s.new", path);
  const int second = open(path, O_RDWR | O_CLOEXEC);
  if (write(fd, "brim", 4) != 4 || fsync(fd) != 0)
    why = "a file cannot be written and synced";
  else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
    why = "its file system has no locks (flock)";
  else if (second >= 0 && flock(second, LOCK_EX | LOCK_NB) == 0)
    why = "its file system does not keep locks (flock)";
  else if (rename(path, other) != 0)
    why = "a file cannot be renamed";
  if (why && errno && strchr(why, '(') == NULL) {
    snprintf(failed, room, "%s: %s", why, strerror(errno));
    why = failed;
  }
  if (second >= 0) close(second);
  close(fd);
  unlink(path);
  unlink(other);
  return why;
}

static const char *network_name(const char *folder)
{
  static const struct {
    long magic;
    const char *name;
  } kinds[] = {
      {0x6969, "NFS"}, {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0xFF534D42L, "CIFS"}, {0x65735546, "FUSE"}};
  struct statfs info;
  if (statfs(folder, &info) != 0) return NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if ((long)info.f_type == kinds[i].magic) return kinds[i].name;
  return NULL;
}

static void look_at_disk(brim_doctor *d, const char *folder)
{
  struct statvfs disk;
  char bytes[32];
  if (statvfs(folder, &disk) != 0) return;
  const uint64_t free = (uint64_t)disk.f_bavail * disk.f_frsize;
  brim_format_bytes(bytes, sizeof bytes, free);
  if (free < DISK_BYTES_MIN)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "disk", "delete old runs (brim runs prune), or choose another run.dir",
                    "only %s free for runs in %s", bytes, folder);
  else if (disk.f_files > 0 && disk.f_favail < FILES_MIN)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "disk", "delete files, or choose another run.dir",
                    "only %llu files can be made in %s", (unsigned long long)disk.f_favail, folder);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "disk", NULL, "%s free for runs in %s", bytes, folder);
}

void brim_doctor_runs(brim_doctor *d)
{
  static const char remedy[] = "choose another folder: run.dir=PATH, on a local disk or another file system";
  char path[BRIM_PATH_MAX], failed[512];
  struct stat info;
  const char *dir = d->config && d->config->settings.run.dir[0] ? d->config->settings.run.dir : "runs";
  snprintf(path, sizeof path, "%s", dir);
  find_existing(path);
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "runs", remedy, "'%s' is not a folder", path);
    return;
  }
  errno = 0;
  const char *why = try_file_system(path, failed, sizeof failed), *network = network_name(path);
  if (why)
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "runs", remedy, "runs cannot be in '%s': %s", path, why);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "runs", NULL, "'%s' can be written and locked%s%s", path,
                    network ? "; it is on " : "", network ? network : "");
  look_at_disk(d, path);
}

/* ---- the cache ---- */

void brim_doctor_cache(brim_doctor *d)
{
  char folder[BRIM_PATH_MAX];
  struct stat info;
  const int length = brim_cache_folder(folder, sizeof folder);
  if (length < 0 || (size_t)length >= sizeof folder) {
    brim_doctor_add(d, BRIM_FINDING_WARNING, "cache", "set HOME or XDG_CACHE_HOME",
                    "there is no folder for measured times and features, so each run measures again");
    return;
  }
  find_existing(folder);
  if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || access(folder, R_OK | W_OK | X_OK) != 0) {
    brim_doctor_add(d, BRIM_FINDING_WARNING, "cache", "make it writable, or set XDG_CACHE_HOME to another folder",
                    "'%s' cannot be written, so each run measures times again", folder);
    return;
  }
  brim_doctor_add(d, BRIM_FINDING_OK, "cache", NULL, "'%s' can be written", folder);
}
