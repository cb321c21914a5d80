#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Of a line such as "VmHWM:   1234 kB". */
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

uint64_t brim_rss_bytes(void)
{
  return status_bytes("VmRSS:");
}
