#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* Parses a line such as "VmHWM:   1234 kB". */
static uint64_t status_bytes(const char *key)
{
  char line[256];
  uint64_t bytes = 0;
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (brim_starts_with(line, key)) bytes = strtoull(line + strlen(key), NULL, 10) * 1024;
  fclose(file);
  return bytes;
}

uint64_t brim_rss_peak_bytes(void)
{
  return status_bytes("VmHWM:");
}

/* A federation calls this in every round, which may take less than a millisecond. So it reads statm, a file of one
 * line, which has the same number as VmRSS in status. */
uint64_t brim_rss_bytes(void)
{
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  char *resident = text;
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

bool brim_process_is_stopped(int64_t pid)
{
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  const size_t n = fread(line, 1, sizeof line - 1, file);
  fclose(file);
  line[n] = '\0';
  const char *at = strrchr(line, ')'); /* after the name, which may contain any character */
  return at && at[1] == ' ' && (at[2] == 'T' || at[2] == 't');
}
