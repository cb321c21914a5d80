/* A backend without any kernels: enough to test the loader's requirements. */
#include "brim/brim.h"

#ifndef REAL
#define REAL BRIM_DTYPE_F32
#endif
#ifndef ALIGNMENT
#define ALIGNMENT 64
#endif
#ifndef KERNEL_RUN
#define KERNEL_RUN run
#endif
#ifndef KERNELS_FIRST
#define KERNELS_FIRST 0
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(brim_backend_ops)
#endif

static brim_status run(void *self, const brim_launch *launch)
{
  (void)self;
  (void)launch;
  return BRIM_OK;
}
static int device_count(void *self)
{
  (void)self;
  return 0;
}
static brim_status describe(void *self, int device, brim_device_info *out)
{
  (void)self;
  (void)out;
  return brim_fail(BRIM_ENODEVICE, "no device %d", device);
}
static brim_status place(void *self, int device, uint64_t bytes, void **base)
{
  (void)self;
  (void)bytes;
  (void)base;
  return brim_fail(BRIM_ENODEVICE, "no device %d", device);
}
static void unplace(void *self, void *base, uint64_t bytes)
{
  (void)self;
  (void)base;
  (void)bytes;
}
static brim_status upload(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self;
  (void)to;
  (void)from;
  (void)bytes;
  return BRIM_OK;
}
static brim_status zero(void *self, void *to, uint64_t bytes)
{
  return upload(self, to, NULL, bytes);
}
static brim_status synchronize(void *self)
{
  (void)self;
  return BRIM_OK;
}

static const brim_kernel relu = {"relu", NULL, NULL, KERNEL_RUN, NULL};
static const brim_kernel *const kernels[] = {&relu};
static const brim_backend_ops ops = {OPS_SIZE,    REAL,      kernels + KERNELS_FIRST,
                                     kernels + 1, ALIGNMENT, device_count,
                                     describe,    place,     unplace,
                                     upload,      upload,    zero,
                                     synchronize};
static const brim_plugin backend = {
    sizeof(brim_plugin), BRIM_BACKEND, "idle", "a backend without devices", 0, NULL, NULL, NULL, &ops};
static const brim_plugin *const plugins[] = {&backend, NULL};
BRIM_MODULE("abi-test-backend", "1.0", plugins)
