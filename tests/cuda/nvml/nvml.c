/* A libnvidia-ml.so.1 whose devices the environment describes:
 *
 *     NVML_DEVICES="GPU-00010203-...=FREE pid:BYTES pid:? ;0000:02:00.0=..."    ?: the driver does not report it;
 *     self:BYTES is the calling process
 *     NVML_INIT=18        nvmlInit_v2 fails with this status
 *     NVML_DRIVER=...     the driver's version; without it none is reported
 *
 * A device is identified by the text before '='. With NVML_OLD defined, processes are listed as drivers before 2020
 * did. This library lacks the functions that take NVML's own device numbers, so that a test detects their use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef struct memory {
  unsigned long long total, free, used;
} memory;
typedef struct process {
  unsigned pid;
  unsigned long long bytes;
#ifndef NVML_OLD
  unsigned gpu_instance, compute_instance;
#endif
} process;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, const char **out);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const char **out);
EXPORT int nvmlDeviceGetMemoryInfo(const char *device, memory *out);
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned room);
EXPORT const char *nvmlErrorString(int error);
#ifdef NVML_OLD
#define LIST nvmlDeviceGetComputeRunningProcesses
#else
#define LIST nvmlDeviceGetComputeRunningProcesses_v3
#endif
EXPORT int LIST(const char *device, unsigned *count, process *out);

static const char *devices(void)
{
  const char *text = getenv("NVML_DEVICES");
  return text ? text : "";
}

/* A handle is the text after the name. */
static int find(const char *name, const char **out)
{
  for (const char *s = devices(); *s; s += strcspn(s, ";"), s += *s == ';')
    if (strncmp(s, name, strlen(name)) == 0 && s[strlen(name)] == '=') {
      *out = s + strlen(name) + 1;
      return SUCCESS;
    }
  return NOT_FOUND;
}

int nvmlInit_v2(void)
{
  const char *error = getenv("NVML_INIT");
  return error ? (int)strtol(error, NULL, 10) : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const char **out)
{
  return find(uuid, out);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const char **out)
{
  return find(bus_id, out);
}

int nvmlDeviceGetMemoryInfo(const char *device, memory *out)
{
  out->free = strtoull(device, NULL, 10);
  out->total = 1ULL << 40;
  out->used = out->total - out->free;
  return SUCCESS;
}

int LIST(const char *device, unsigned *count, process *out)
{
  unsigned found = 0;
  for (const char *s = strchr(device, ' '); s && s < device + strcspn(device, ";"); s = strchr(s + 1, ' ')) {
    unsigned pid = 0;
    if (strncmp(s, " self:", 6) == 0)
      pid = (unsigned)getpid();
    else if (sscanf(s, " %u:", &pid) != 1)
      continue;
    const char *bytes = strchr(s, ':') + 1;
    if (found == *count) return INSUFFICIENT_SIZE;
    out[found] = (process){.pid = pid, .bytes = *bytes == '?' ? ~0ULL : strtoull(bytes, NULL, 10)};
    found++;
  }
  *count = found;
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *out, unsigned room)
{
  const char *version = getenv("NVML_DRIVER");
  if (!version) return NOT_FOUND;
  snprintf(out, room, "%s", version);
  return SUCCESS;
}

const char *nvmlErrorString(int error)
{
  return error == NOT_FOUND ? "Not Found" : error == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
