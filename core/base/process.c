#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* Reads a line such as "VmHWM:   1234 kB". */
uint64_t brim_rss_peak_bytes(void)
{
  static const char key[] = "\nVmHWM:";
  char text[8192];
  (void)brim_file_start("/proc/self/status", text, sizeof text);
  const char *line = strstr(text, key);
  return line ? strtoull(line + sizeof key - 1, NULL, 10) * 1024 : 0;
}

/* A federation calls this in every round, which may take less than a millisecond. So it reads statm, a file of one
 * line, which has the same number as VmRSS in status. */
uint64_t brim_rss_bytes(void)
{
  char text[128], *resident = text;
  if (brim_file_start("/proc/self/statm", text, sizeof text) == 0) return 0;
  (void)strtoull(text, &resident, 10); /* skips the size of the address space */
  return strtoull(resident, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Touches the code of the object that contains the address at `own`. */
static int touch_object(struct dl_phdr_info *object, size_t size, void *own)
{
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), address = *(const uintptr_t *)own;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || address < begin || address >= end) continue;
    for (uintptr_t at = begin; at < end; at += page) (void)*(const volatile char *)at;
    return 1;
  }
  return 0;
}

void brim_touch_code(void)
{
  uintptr_t own = (uintptr_t)brim_touch_code;
  (void)dl_iterate_phdr(touch_object, &own);
}

int brim_process_start(const char *file, const char *const *word, char *const *environment, const int stream[3],
                       pid_t *pid)
{
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&files);
  for (int i = 0; i < 3; i++)
    if (stream[i] < 0)
      posix_spawn_file_actions_addopen(&files, i, "/dev/null", i == 0 ? O_RDONLY : O_WRONLY, 0);
    else
      posix_spawn_file_actions_adddup2(&files, stream[i], i);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int error = posix_spawn(pid, file, &files, &attributes, (char *const *)word, environment);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

/* Reads a file of /proc/ID, of a process or thread; an empty text if that fails. */
static void read_of(int64_t id, const char *name, char *out, size_t room)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%" PRId64 "/%s", id, name);
  (void)brim_file_start(path, out, room);
}

/* A letter as in proc(5); 0: unknown. */
static char state_of(int64_t id)
{
  char line[512];
  read_of(id, "stat", line, sizeof line);
  const char *at = strrchr(line, ')'); /* the state follows the process's name, which may contain anything */
  return at && at[1] == ' ' ? at[2] : '\0';
}

bool brim_process_is_stopped(int64_t pid)
{
  const char state = state_of(pid);
  return state == 'T' || state == 't';
}

bool brim_thread_can_run(int64_t tid)
{
  return state_of(tid) == 'R';
}

double brim_thread_queued_seconds(int64_t tid)
{
  char line[128], *queued = line;
  read_of(tid, "schedstat", line, sizeof line);
  (void)strtoull(line, &queued, 10); /* skips its processor time */
  return 1e-9 * (double)strtoull(queued, NULL, 10);
}
