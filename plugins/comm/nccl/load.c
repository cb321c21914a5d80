/* Loads libnccl.so.2. */
#include <dlfcn.h>
#include <string.h>

#include "brim/brim.h"
#include "library.h"

static nccl_library table;
static const struct {
  const char *name;
  size_t offset;
} functions[] = {
#define X(name) {"nccl" #name, offsetof(nccl_library, name)},
    NCCL_FUNCTIONS(X)
#undef X
};

brim_status nccl_library_load(const nccl_library **out)
{
  *out = &table;
  if (table.GetVersion) return BRIM_OK;
  void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return brim_fail(BRIM_ELOAD,
                     "cannot load NCCL: %s\nit comes with NVIDIA's packages (libnccl2, nvidia-nccl); "
                     "if it is in another folder, add that folder to LD_LIBRARY_PATH",
                     dlerror());
  nccl_library found;
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    void *symbol = dlsym(handle, functions[i].name);
    if (!symbol) return brim_fail(BRIM_ELOAD, "this NCCL is too old: it has no %s", functions[i].name);
    memcpy((char *)&found + functions[i].offset, &symbol, sizeof symbol); /* ISO C has no cast to function pointers */
  }
  table = found;
  return BRIM_OK;
}
