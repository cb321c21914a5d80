/* A backend whose GPUs are made up by $TEST_GPUS: "100/400,300/400" are two, with MiB free and in all. They can be
 * looked at and nothing else. "broken": they are there, but the driver has no answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

#define MIB ((uint64_t)1 << 20)

static const char *gpus(void)
{
  const char *text = getenv("TEST_GPUS");
  return text ? text : "";
}

static int device_count(void *self)
{
  const char *text = gpus();
  int count = text[0] != '\0';
  (void)self;
  for (; *text; text++) count += *text == ',';
  return count;
}

static brim_status describe(void *self, int device, brim_device_info *out)
{
  const char *text = gpus();
  (void)self;
  if (strcmp(text, "broken") == 0) return brim_fail(BRIM_EDEVICE, "the driver does not answer\ntry to restart it");
  for (int i = 0; i < device; i++) text = strchr(text, ',') + 1;
  char *end = NULL;
  *out = (brim_device_info){.name = "made up"};
  out->free_bytes = strtoull(text, &end, 10) * MIB;
  out->total_bytes = strtoull(end + 1, NULL, 10) * MIB;
  return BRIM_OK;
}

static brim_status place(void *self, int device, uint64_t bytes, void **base)
{
  (void)self;
  (void)bytes;
  *base = NULL;
  return brim_fail(BRIM_ENOTSUP, "device %d is made up", device);
}
static void unplace(void *self, void *base, uint64_t bytes)
{
  (void)self;
  (void)base;
  (void)bytes;
}
static brim_status copy(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self;
  (void)to;
  (void)from;
  (void)bytes;
  return brim_fail(BRIM_ENOTSUP, "the GPUs are made up");
}
static brim_status zero(void *self, void *to, uint64_t bytes)
{
  return copy(self, to, NULL, bytes);
}
static brim_status synchronize(void *self)
{
  return copy(self, NULL, NULL, 0);
}
static brim_status run(void *self, const brim_launch *launch)
{
  (void)launch;
  return copy(self, NULL, NULL, 0);
}

BRIM_KERNEL(relu) = {.op = "relu", .run = run};

static const brim_backend_ops ops = {.size = sizeof ops,
                                     .real = BRIM_DTYPE_F32,
                                     .kernels = BRIM_KERNELS,
                                     .kernels_end = BRIM_KERNELS_END,
                                     .alignment = 64,
                                     .device_count = device_count,
                                     .describe = describe,
                                     .place = place,
                                     .unplace = unplace,
                                     .upload = copy,
                                     .download = copy,
                                     .zero = zero,
                                     .synchronize = synchronize};
static const brim_plugin backend = {
    .size = sizeof backend, .kind = BRIM_BACKEND, .id = "gpus", .help = "GPUs that are made up", .ops = &ops};
static const brim_plugin *const plugins[] = {&backend, NULL};
BRIM_MODULE("test-gpus", "1.0", plugins)
