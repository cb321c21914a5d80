/* Loads libraries.so.1, which lies in the folder `cuda` beside this plugin, and passes calls on to it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "card.h"
#include "device.h"
#include "libraries/libraries.h"

static const cuda_libraries *table; /* set when the libraries are loaded; they stay loaded until the process exits */

/* Writes the path "<folder of this plugin>/cuda/libraries.so.1". */
static brim_status find_file(char *path, size_t room)
{
  static const char file[] = "cuda/libraries.so.1";
  Dl_info own;
  if (dladdr(&table, &own) == 0 || !own.dli_fname)
    return brim_fail(BRIM_EINTERNAL, "cannot find the path of the cuda plugin");
  const char *slash = strrchr(own.dli_fname, '/');
  const int folder = slash ? (int)(slash - own.dli_fname + 1) : 0;
  const int length = snprintf(path, room, "%.*s%s", folder, own.dli_fname, file);
  if (length < 0 || (size_t)length >= room) return brim_fail(BRIM_ELOAD, "the path of %s is too long", file);
  return BRIM_OK;
}

/* Writes the version number of cuDNN in a file, such as "8.9.7". Returns false if the file is missing. */
static bool read_dnn_version(const char *file, char *out, size_t room)
{
  size_t (*version)(void) = NULL;
  void *handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return false;
  void *symbol = dlsym(handle, "cudnnGetVersion");
  memcpy(&version, &symbol, sizeof version); /* ISO C has no cast to function pointers */
  const size_t number = version ? version() : 0;
  const size_t unit = number >= 90000 ? 10000 : 1000; /* 10000 from cuDNN 9 on, 1000 before */
  snprintf(out, room, "%zu.%zu.%zu", number / unit, number % unit / 100, number % 100);
  dlclose(handle);
  return number > 0;
}

#define DNN_MAJORS 20 /* versions 1 to 19 are looked for */

/* If the host has cuDNN of another major version, the message says so, because the user thinks it is installed. */
static brim_status refuse(const char *reason)
{
  char why[1024], file[32], version[32];
  snprintf(why, sizeof why, "%s", reason ? reason : "no reason is known");
  for (int major = DNN_MAJORS - 1; strstr(why, "libcudnn.so.") && major > 0; major--) {
    snprintf(file, sizeof file, "libcudnn.so.%d", major);
    if (strstr(why, file) || !read_dnn_version(file, version, sizeof version)) continue;
    return brim_fail(BRIM_ENODEVICE,
                     "cuDNN cannot be loaded: %s\nthis host has cuDNN %s, another major version: install the required "
                     "version, or build brim with this one; LD_LIBRARY_PATH adds folders to search",
                     why, version);
  }
  return brim_fail(BRIM_ELOAD,
                   "cuBLASLt and cuDNN cannot be loaded: %s\nthey are part of the CUDA toolkit and of NVIDIA's "
                   "packages; LD_LIBRARY_PATH adds folders to search",
                   why);
}

static brim_status load(void)
{
  char path[PATH_MAX];
  if (table) return BRIM_OK;
  BRIM_TRY(find_file(path, sizeof path));
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return refuse(dlerror());
  const cuda_libraries *found = dlsym(handle, CUDA_LIBRARIES_SYMBOL);
  if (!found || found->size != sizeof *found)
    return brim_fail(BRIM_ELOAD, "%s and the plugin beside it are from different builds of brim", path);
  table = found;
  return BRIM_OK;
}

brim_status cuda_library_open(cuda_backend *b)
{
  BRIM_TRY(load());
  return table->open(b);
}
void cuda_library_close(cuda_backend *b)
{
  if (table) table->close(b);
}
brim_status cuda_product_prepare(cuda_backend *b, const cuda_product *product, cuda_product_plan **plan,
                                 uint64_t *scratch_bytes)
{
  if (cuda_card_of(b)) return cuda_card_product(plan, scratch_bytes);
  return table->product_prepare(b, product, plan, scratch_bytes);
}
brim_status cuda_product_run(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *operands)
{
  if (cuda_counts(b)) return BRIM_OK;
  return table->product_run(b, plan, operands);
}
void cuda_product_release(cuda_product_plan *plan)
{
  if (table && !cuda_card_made(plan)) table->product_release(plan);
}
bool cuda_dnn_prefers_last(const cuda_backend *b, uint32_t dtype)
{
  if (cuda_card_of(b)) return dtype != BRIM_DTYPE_F32 || b->params->tf32; /* the same condition as in libraries/dnn.c */
  return table->dnn_prefers_last(b, dtype);
}
brim_status cuda_dnn_prepare(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes)
{
  if (cuda_card_of(b)) return cuda_card_dnn(plan, scratch_bytes);
  const uint64_t before = cuda_device_free_bytes(); /* cuDNN loads engines, or compiles them, when it makes a plan */
  const brim_status status = table->dnn_prepare(b, conv, plan, scratch_bytes);
  cuda_device_count_library(b, before);
  return status;
}
brim_status cuda_dnn_run(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y, void *scratch)
{
  if (cuda_counts(b)) return BRIM_OK;
  return table->dnn_run(b, plan, x, weight, y, scratch);
}
void cuda_dnn_release(cuda_dnn_plan *plan)
{
  if (table && !cuda_card_made(plan)) table->dnn_release(plan);
}
brim_status cuda_sdpa_prepare(cuda_backend *b, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                              uint64_t *scratch_bytes)
{
  if (cuda_card_of(b)) return cuda_card_sdpa(b, sdpa, plan, at_once, scratch_bytes);
  const uint64_t before = cuda_device_free_bytes(); /* cuDNN loads engines, or compiles them, when it makes a plan */
  const brim_status status = table->sdpa_prepare(b, sdpa, plan, at_once, scratch_bytes);
  cuda_device_count_library(b, before);
  return status;
}
brim_status cuda_sdpa_run(cuda_backend *b, const cuda_sdpa_plan *plan, const cuda_sdpa_values *values, void *scratch)
{
  if (cuda_counts(b)) return BRIM_OK;
  return table->sdpa_run(b, plan, values, scratch);
}
void cuda_sdpa_release(cuda_sdpa_plan *plan)
{
  if (table && !cuda_card_made(plan)) table->sdpa_release(plan);
}
