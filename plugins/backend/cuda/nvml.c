/* NVML by dlopen. This file declares the few functions that it needs, because toolkits may come without nvml.h. Their
 * ABI has not changed since the drivers of 2020. */
#include "nvml.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnvidia-ml.so.1"
#define USERS_MAX 4096 /* maximum processes of a device */

enum { NVML_SUCCESS = 0, NVML_INSUFFICIENT_SIZE = 7 };
typedef struct nvml_device *nvml_handle;
typedef struct nvml_memory {
  unsigned long long total, free, used;
} nvml_memory;

/* The query for a device's processes, under the newest name that the library has. Versions 2 and 3 fill entries of 24
 * bytes, version 1 entries of 16 bytes; all begin with these members. Some drivers of branch 535 write 32 bytes under
 * the name of version 3, so there is always room for 32. */
typedef struct nvml_process {
  unsigned pid;
  unsigned long long bytes; /* all ones if unknown */
} nvml_process;
#define PROCESS_BYTES_MAX 32
typedef int (*list_fn)(nvml_handle device, unsigned *count, void *entries);
enum { LIST_COMPUTE, LIST_GRAPHICS, LISTS };
static const struct {
  const char *name;
  int list;
  size_t entry_bytes;
} list_names[] = {
    {"nvmlDeviceGetComputeRunningProcesses_v3", LIST_COMPUTE, 24},
    {"nvmlDeviceGetComputeRunningProcesses_v2", LIST_COMPUTE, 24},
    {"nvmlDeviceGetComputeRunningProcesses", LIST_COMPUTE, 16},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", LIST_GRAPHICS, 24},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", LIST_GRAPHICS, 24},
    {"nvmlDeviceGetGraphicsRunningProcesses", LIST_GRAPHICS, 16},
};

/* The library, which a process opens once and never closes. */
static struct {
  char problem[256]; /* why the library is not usable; empty if it is */
  int (*by_uuid)(const char *uuid, nvml_handle *out);
  int (*by_bus_id)(const char *bus_id, nvml_handle *out); /* may be NULL, as may the functions below */
  int (*memory)(nvml_handle device, nvml_memory *out);
  int (*driver)(char *out, unsigned room);
  const char *(*error_text)(int error);
  struct {
    list_fn ask;
    size_t entry_bytes;
  } list[LISTS];
} nvml;

/* The linker returns void *; POSIX guarantees that it can hold a function. `function` is the address of a pointer. */
static bool find(void *library, const char *name, void *function)
{
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static const char *text_of(int error)
{
  const char *text = nvml.error_text ? nvml.error_text(error) : NULL;
  return text ? text : "an error without a text";
}

static void find_lists(void *library)
{
  for (size_t i = 0; i < sizeof list_names / sizeof list_names[0]; i++) {
    const int k = list_names[i].list;
    if (!nvml.list[k].ask && find(library, list_names[i].name, &nvml.list[k].ask))
      nvml.list[k].entry_bytes = list_names[i].entry_bytes;
  }
}

static void open_library(void)
{
  int (*init)(void) = NULL;
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(nvml.problem, sizeof nvml.problem, "the driver's library " LIBRARY " cannot be loaded");
    return;
  }
  find(library, "nvmlErrorString", &nvml.error_text);
  find(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_bus_id);
  find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
  find(library, "nvmlSystemGetDriverVersion", &nvml.driver);
  find_lists(library);
  if (!find(library, "nvmlInit_v2", &init) || !find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid)) {
    snprintf(nvml.problem, sizeof nvml.problem, LIBRARY " lacks functions that drivers have had since 2020");
    return;
  }
  const int error = init();
  if (error != NVML_SUCCESS) snprintf(nvml.problem, sizeof nvml.problem, LIBRARY " does not start: %s", text_of(error));
}

static brim_status open_once(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return nvml.problem[0] ? brim_fail(BRIM_ENOTSUP, "%s", nvml.problem) : BRIM_OK;
}

static void format_uuid(const char *prefix, const uint8_t uuid[16], char out[CUDA_UUID_BYTES])
{
  size_t length = (size_t)snprintf(out, CUDA_UUID_BYTES, "%s", prefix);
  for (int i = 0; i < 16; i++)
    length += (size_t)snprintf(out + length, CUDA_UUID_BYTES - length, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* Finds the device and writes its name into `uuid`. The runtime's UUID does not distinguish a GPU from a MIG instance,
 * so both prefixes are tried. The bus id is tried last, because a MIG instance has the bus id of its whole GPU. */
static brim_status find_handle(const cuda_nvml_key *key, char uuid[CUDA_UUID_BYTES], nvml_handle *out)
{
  char mig[CUDA_UUID_BYTES];
  format_uuid("GPU-", key->uuid, uuid);
  format_uuid("MIG-", key->uuid, mig);
  BRIM_TRY(open_once());
  const int error = nvml.by_uuid(uuid, out);
  if (error == NVML_SUCCESS) return BRIM_OK;
  if (nvml.by_uuid(mig, out) == NVML_SUCCESS) {
    memcpy(uuid, mig, CUDA_UUID_BYTES);
    return BRIM_OK;
  }
  if (nvml.by_bus_id && key->bus_id[0] && nvml.by_bus_id(key->bus_id, out) == NVML_SUCCESS) return BRIM_OK;
  return brim_fail(BRIM_ENOTSUP, LIBRARY " does not know %s: %s", uuid, text_of(error));
}

void cuda_nvml_uuid(const cuda_nvml_key *key, char out[CUDA_UUID_BYTES])
{
  nvml_handle device = NULL;
  (void)find_handle(key, out, &device);
}

brim_status cuda_nvml_find(const cuda_nvml_key *key, struct nvml_device **out)
{
  char uuid[CUDA_UUID_BYTES];
  return find_handle(key, uuid, out);
}

brim_status cuda_nvml_free_bytes(struct nvml_device *device, uint64_t *out)
{
  nvml_memory memory;
  if (!nvml.memory) return brim_fail(BRIM_ENOTSUP, LIBRARY " does not report memory");
  const int error = nvml.memory(device, &memory);
  if (error != NVML_SUCCESS)
    return brim_fail(BRIM_ENOTSUP, LIBRARY " cannot report a device's memory: %s", text_of(error));
  *out = memory.free;
  return BRIM_OK;
}

brim_status cuda_nvml_driver(char out[CUDA_DRIVER_BYTES])
{
  BRIM_TRY(open_once());
  if (!nvml.driver) return brim_fail(BRIM_ENOTSUP, LIBRARY " does not report the driver's version");
  const int error = nvml.driver(out, CUDA_DRIVER_BYTES);
  return error == NVML_SUCCESS
             ? BRIM_OK
             : brim_fail(BRIM_ENOTSUP, LIBRARY " cannot report the driver's version: %s", text_of(error));
}

/* Writes a process's name, such as "python3"; empty if this process cannot see it, for instance if it runs in another
 * container. */
static void read_name(int64_t pid, char *out, size_t room)
{
  char path[64];
  out[0] = '\0';
  snprintf(path, sizeof path, "/proc/%" PRId64 "/comm", pid);
  FILE *file = fopen(path, "re");
  if (!file) return;
  if (!fgets(out, (int)room, file)) out[0] = '\0';
  out[strcspn(out, "\n")] = '\0';
  fclose(file);
}

static void add_user(const nvml_process *process, brim_device_user *out, size_t room, size_t *count)
{
  for (size_t i = 0; i < *count && i < room; i++)
    if (out[i].pid == (int64_t)process->pid) return; /* listed twice, because it computes and draws */
  if (*count < room) {
    brim_device_user *user = &out[*count];
    *user = (brim_device_user){.pid = process->pid, .bytes = process->bytes};
    if (process->bytes == ~0ULL) user->bytes = BRIM_BYTES_UNKNOWN;
    read_name(user->pid, user->name, sizeof user->name);
  }
  ++*count;
}

static int add_list(int list, nvml_handle device, brim_device_user *out, size_t room, size_t *count)
{
  const size_t stride = nvml.list[list].entry_bytes;
  unsigned entries = USERS_MAX;
  uint8_t *entry = brim_try_calloc(USERS_MAX, PROCESS_BYTES_MAX);
  if (!entry) return NVML_INSUFFICIENT_SIZE;
  const int error = nvml.list[list].ask(device, &entries, entry);
  for (unsigned i = 0; error == NVML_SUCCESS && i < entries && i < USERS_MAX; i++) {
    nvml_process process;
    memcpy(&process, entry + i * stride, sizeof process);
    add_user(&process, out, room, count);
  }
  free(entry);
  return error;
}

brim_status cuda_nvml_own_bytes(struct nvml_device *device, uint64_t *out)
{
  brim_device_user *user = brim_try_calloc(USERS_MAX, sizeof *user);
  size_t count = 0;
  *out = BRIM_BYTES_UNKNOWN;
  if (!user) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the list of a device's processes");
  if (nvml.list[LIST_COMPUTE].ask) (void)add_list(LIST_COMPUTE, device, user, USERS_MAX, &count);
  for (size_t i = 0; i < count && i < USERS_MAX; i++)
    if (user[i].pid == getpid()) *out = user[i].bytes;
  free(user);
  if (*out != BRIM_BYTES_UNKNOWN) return BRIM_OK;
  return brim_fail(BRIM_ENOTSUP, LIBRARY " does not list this process with its memory");
}

brim_status cuda_nvml_users(const cuda_nvml_key *key, brim_device_user *out, size_t room, size_t *count)
{
  char uuid[CUDA_UUID_BYTES];
  nvml_handle device = NULL;
  *count = 0;
  BRIM_TRY(find_handle(key, uuid, &device));
  if (!nvml.list[LIST_COMPUTE].ask) return brim_fail(BRIM_ENOTSUP, LIBRARY " does not report processes");
  const int error = add_list(LIST_COMPUTE, device, out, room, count);
  if (error != NVML_SUCCESS)
    return brim_fail(BRIM_ENOTSUP, LIBRARY " cannot report the processes of %s: %s", uuid, text_of(error));
  if (nvml.list[LIST_GRAPHICS].ask) (void)add_list(LIST_GRAPHICS, device, out, room, count);
  return BRIM_OK;
}
