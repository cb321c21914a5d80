/* Loads NVML with dlopen, as the cuda backend does (plugins/backend/cuda/nvml.c), which reports memory and processes.
 * The functions are declared here because toolkits may come without nvml.h. */
#include "monitor/gauges.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define CHIP 0 /* NVML_TEMPERATURE_GPU */

typedef struct nvml_device *nvml_handle;
typedef struct nvml_use {
  unsigned gpu, memory; /* percent */
} nvml_use;

/* The library, opened once in a process and never closed. Members that it lacks are NULL. */
static struct {
  int (*by_uuid)(const char *uuid, nvml_handle *out); /* NULL: the library is not usable */
  int (*use)(nvml_handle device, nvml_use *out);
  int (*temperature)(nvml_handle device, int sensor, unsigned *celsius);
  int (*power)(nvml_handle device, unsigned *milliwatts);
  int (*power_limit)(nvml_handle device, unsigned *milliwatts);
} nvml;

/* The linker's type is void *; POSIX guarantees that it holds a function. `function` is the address of a pointer. */
static void find(void *library, const char *name, void *function)
{
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

static void open_library(void)
{
  int (*init)(void) = NULL;
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  find(library, "nvmlInit_v2", &init);
  if (!init || init() != 0) return;
  find(library, "nvmlDeviceGetUtilizationRates", &nvml.use);
  find(library, "nvmlDeviceGetTemperature", &nvml.temperature);
  find(library, "nvmlDeviceGetPowerUsage", &nvml.power);
  find(library, "nvmlDeviceGetEnforcedPowerLimit", &nvml.power_limit);
  find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid);
}

brim_gauges brim_gauges_read(const char *uuid)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  brim_gauges out = {NAN, NAN, NAN, NAN};
  nvml_handle device = NULL;
  nvml_use use = {0, 0};
  unsigned value = 0;
  if (!uuid[0]) return out;
  pthread_once(&once, open_library);
  if (!nvml.by_uuid || nvml.by_uuid(uuid, &device) != 0) return out;
  if (nvml.use && nvml.use(device, &use) == 0) out.load = use.gpu;
  if (nvml.temperature && nvml.temperature(device, CHIP, &value) == 0) out.celsius = value;
  if (nvml.power && nvml.power(device, &value) == 0) out.watts = value / 1e3;
  if (nvml.power_limit && nvml.power_limit(device, &value) == 0) out.watts_max = value / 1e3;
  return out;
}
