/* The memory order of activations, [N][C/b][H][W][b], and operations that change it: reshape, and the conversion of
 * inputs whose orders differ within one kernel. */
#include "cpu.h"

void cpu_layout_set(brim_tensor *t, int64_t channel_block)
{
  if (t->shape.rank == 4) t->channel_block = channel_block;
}

typedef struct conversion {
  const cpu_simd *simd;
  const float *from;
  float *to;
  int64_t channels, pixels, from_block, to_block;
} conversion;

/* Converts between plain order and blocks of channels: each block is a matrix [pixels][b] to transpose. */
static void convert_plain(const conversion *v, const float *from, float *to)
{
  const int64_t b = cpu_max(v->from_block, v->to_block);
  for (int64_t c = 0; c < v->channels; c += b, from += b * v->pixels, to += b * v->pixels) {
    if (v->to_block == 1)
      v->simd->transpose(from, b, to, v->pixels, v->pixels, b);
    else
      v->simd->transpose(from, v->pixels, to, b, b, v->pixels);
  }
}

/* Converts between two block sizes. Channels that are neighbours in both orders are copied together. */
static void convert_blocked(const conversion *v, const float *from, float *to)
{
  const int64_t f = v->from_block, t = v->to_block;
  int64_t together = cpu_min(f, t);
  while (f % together || t % together) together--;
  for (int64_t c = 0; c < v->channels; c += together) {
    const float *source = from + c / f * f * v->pixels + c % f;
    float *target = to + c / t * t * v->pixels + c % t;
    for (int64_t i = 0; i < v->pixels; i++) memcpy(target + i * t, source + i * f, (size_t)together * sizeof *to);
  }
}

static void convert_sample(void *arg, int64_t n, int32_t thread)
{
  (void)thread;
  const conversion *v = arg;
  const int64_t count = v->channels * v->pixels;
  const float *from = v->from + n * count;
  float *to = v->to + n * count;
  if (v->from_block == v->to_block)
    memcpy(to, from, (size_t)count * sizeof *to);
  else if (v->from_block == 1 || v->to_block == 1)
    convert_plain(v, from, to);
  else
    convert_blocked(v, from, to);
}

void cpu_layout_convert(cpu_backend *b, const brim_shape *shape, const float *from, int64_t from_block, float *to,
                        int64_t to_block)
{
  const int64_t samples = shape->rank > 0 ? shape->dim[0] : 1;
  if (samples == 0) return;
  conversion v = {.simd = b->simd, .from = from, .to = to, .from_block = from_block, .to_block = to_block};
  v.channels = shape->rank == 4 ? shape->dim[1] : 1;
  v.pixels = brim_shape_count(shape) / samples / cpu_max(v.channels, 1);
  cpu_pool_run(b->pool, samples, convert_sample, &v);
}

uint64_t cpu_layout_bytes(const brim_tensor *t, int64_t channel_block)
{
  return t->channel_block == channel_block ? 0 : t->bytes;
}

const float *cpu_layout_of(cpu_backend *b, const brim_tensor *t, const float *values, int64_t channel_block,
                           void *workspace)
{
  if (t->channel_block == channel_block) return values;
  cpu_layout_convert(b, &t->shape, values, t->channel_block, workspace, channel_block);
  return workspace;
}

/* Returns the scratch bytes for converting the inputs before the i-th. */
static uint64_t scratch_before(const brim_node *n, uint32_t i, int64_t channel_block)
{
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < i; k++) bytes += cpu_aligned(cpu_layout_bytes(n->in[k], channel_block));
  return bytes;
}

static const void *input(cpu_backend *b, const brim_launch *launch, uint32_t i, int64_t channel_block)
{
  const brim_node *n = launch->node;
  return cpu_layout_of(b, n->in[i], launch->in[i], channel_block,
                       (char *)launch->workspace + scratch_before(n, i, channel_block));
}

CPU_PREPARE(cpu_plain_prepare)
{
  (void)self;
  (void)program;
  (void)state;
  need->workspace_bytes += scratch_before(node, node->in_count, 1);
  return BRIM_OK;
}

const void *cpu_plain_input(cpu_backend *b, const brim_launch *launch, uint32_t i)
{
  return input(b, launch, i, 1);
}

void *cpu_plain_end(const brim_launch *launch)
{
  return (char *)launch->workspace + scratch_before(launch->node, launch->node->in_count, 1);
}

CPU_PREPARE(cpu_same_order_prepare)
{
  need->workspace_bytes += scratch_before(node, node->in_count, node->in[0]->channel_block);
  return cpu_follow_prepare(self, program, node, need, state);
}

const void *cpu_same_order_input(cpu_backend *b, const brim_launch *launch, uint32_t i)
{
  return input(b, launch, i, launch->node->in[0]->channel_block);
}

void *cpu_same_order_end(const brim_launch *launch)
{
  const brim_node *n = launch->node;
  return (char *)launch->workspace + scratch_before(n, n->in_count, n->in[0]->channel_block);
}

/* A result of rank 4 gets the memory order of convolutions, because it is usually a gradient on its way from a flatten
 * to a convolution. If the channels do not fit into blocks, the result is plain, which needs no copy. */
static CPU_PREPARE(reshape_prepare)
{
  (void)program;
  (void)state;
  const cpu_backend *b = self;
  const brim_tensor *x = node->in[0];
  brim_tensor *y = node->out[0];
  if (brim_shape_equal(&x->shape, &y->shape)) { /* this reshape only passes a gradient on, so it shares the memory */
    cpu_layout_set(y, x->channel_block);
    return BRIM_OK;
  }
  if (y->shape.rank == 4 && y->shape.dim[1] % b->block == 0) cpu_layout_set(y, b->block);
  const bool both_blocked = x->channel_block != 1 && y->channel_block != 1;
  need->no_inplace = x->channel_block != 1 || y->channel_block != 1;
  need->workspace_bytes = both_blocked ? x->bytes : 0;
  return BRIM_OK;
}

static CPU_RUN(reshape_run)
{
  cpu_backend *b = self;
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const float *from = launch->in[0];
  float *to = launch->out[0];
  const bool alike = x->channel_block == y->channel_block;
  if (alike && (x->channel_block == 1 || brim_shape_equal(&x->shape, &y->shape))) {
    if (from != to) cpu_layout_convert(b, &x->shape, from, x->channel_block, to, x->channel_block);
  } else if (y->channel_block == 1) {
    cpu_layout_convert(b, &x->shape, from, x->channel_block, to, 1);
  } else {
    const float *plain = cpu_layout_of(b, x, from, 1, launch->workspace);
    cpu_layout_convert(b, &y->shape, plain, 1, to, y->channel_block);
  }
  return BRIM_OK;
}

CPU_KERNEL(reshape) = {.op = "reshape", .prepare = reshape_prepare, .run = reshape_run};
