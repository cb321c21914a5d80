/* A backend with simulated GPUs, set by $TEST_GPUS: "100/400,300/400" are two, with free and total MiB. They can be
 * listed, and mlps can be planned for them. "broken": they exist, but the driver does not answer.
 *
 * "300/400/5" is of another kind, whose products need 5 MiB of scratch; "300/400/0" can only be listed. As long as a
 * GPU is selected, it has CONTEXT_MIB less free memory, which stands for the driver's context. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

#define MIB ((uint64_t)1 << 20)
#define CONTEXT_MIB 3

static int selected = -1;

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
  out->total_bytes = strtoull(end + 1, &end, 10) * MIB;
  if (*end == '/') snprintf(out->name, sizeof out->name, "made up, of kind %llu", strtoull(end + 1, NULL, 10));
  if (device != selected) return BRIM_OK;
  out->taken_bytes = CONTEXT_MIB * MIB;
  out->free_bytes -= out->taken_bytes;
  return BRIM_OK;
}

/* Returns the scratch memory of products on a device, in MiB; 0 means that the device cannot be selected. */
static uint64_t kind_of(int device)
{
  brim_device_info info;
  const char *kind = NULL;
  if (describe(NULL, device, &info) == BRIM_OK) kind = strrchr(info.name, ' ');
  return kind && strstr(info.name, "kind") ? strtoull(kind, NULL, 10) : 1;
}

static brim_status choose(void *self, int device)
{
  (void)self;
  selected = -1;
  if (kind_of(device) == 0) return brim_fail(BRIM_ENOTSUP, "GPU %d is too old", device);
  selected = device;
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

static brim_status prepare(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,
                           void **state)
{
  (void)self;
  (void)program;
  (void)node;
  (void)state;
  need->workspace_bytes = kind_of(selected) * MIB;
  return BRIM_OK;
}

BRIM_KERNEL(linear) = {.op = "linear", .prepare = prepare, .run = run};
#define PLAIN(id) BRIM_KERNEL(id) = {.op = #id, .run = run}
PLAIN(reshape);
PLAIN(softmax_cross_entropy);
PLAIN(classification_metrics);
PLAIN(softmax_cross_entropy_grad);
PLAIN(linear_grad_weight);
PLAIN(linear_grad_input);
PLAIN(relu_grad);
PLAIN(adamw);
PLAIN(relu);

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
                                     .synchronize = synchronize,
                                     .select = choose};
static const brim_plugin backend = {
    .size = sizeof backend, .kind = BRIM_BACKEND, .id = "gpus", .help = "GPUs that are made up", .ops = &ops};
static const brim_plugin *const plugins[] = {&backend, NULL};
BRIM_MODULE("test-gpus", "1.0", plugins)
