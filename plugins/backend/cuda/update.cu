/* The optimizers' updates and the moving averages, in place. With g the gradient times gradient_scale's factor:
 *
 *     adamw   p = p - lr * weight_decay * p         adam   g = g + weight_decay * p
 *         m = beta1 * m + (1 - beta1) * g
 *         v = beta2 * v + (1 - beta2) * g^2
 *         p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps)
 *     yogi    as adam, but   v = v - (1 - beta2) * sign(v - g^2) * g^2
 *     adagrad d = g + weight_decay * p
 *         sum = sum + d^2
 *         p = p - lr * d / (sqrt(sum) + eps)
 *     sgd     d = g + weight_decay * p
 *         velocity = momentum * velocity + d
 *         p = p - lr * velocity   or Nesterov:   p - lr * (d + momentum * velocity)
 *     lion            p = p - lr * weight_decay * p - lr * sign(beta1 * m + (1 - beta1) * g)
 *         m = beta2 * m + (1 - beta2) * g
 *     ema             average = decay * average + (1 - decay) * p
 *     moving_average  value = value + momentum * (sum / groups - value)
 *
 * Bytes per element: 28 for adam and yogi (read p, g, m, v, write p, m, v), 20 for adagrad, sgd and lion, 12 for the
 * averages. Two things limit the speed: memory, and the number of launches, because there are hundreds of parameters
 * and most are tiny. So one launch processes a table of parameters (update_table.h), in pieces of 4096 elements. A node
 * that runs by itself is a table with one entry. Hyperparameters are computed once in each block, in double precision.
 *
 * The code calls fmaf explicitly, because otherwise the compiler chooses which sums to contract, and the same element
 * might get other bits in another launch. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "update.h"
}

enum kind { ADAM, YOGI, ADAGRAD, SGD, LION, EMA, MOVING_AVERAGE };
enum flags { NO_DECAY = 1, DECOUPLED = 2 /* adamw */, NESTEROV = 4 };

/* In an entry, tensor[0] is only read: the gradient, the parameter of ema, or the sum of moving_average. The tensors
 * after it change. */
template <enum kind K> static constexpr bool is_optimizer = K != EMA &&K != MOVING_AVERAGE;
template <enum kind K> static constexpr int changed_of = K == ADAM || K == YOGI ? 3 : is_optimizer<K> ? 2 : 1;

/* The step's hyperparameters in fp32, computed once in each block. */
typedef struct hyper {
  float factor, lr, weight_decay, kept; /* kept: 1 - lr * weight_decay */
  float beta1, rest1, beta2, rest2, step_size, root, eps, initial;
  float momentum;
  bool first; /* true in the first step */
  float groups;
} hyper;

static __device__ inline hyper make_hyper(const brim_step *s, const double *scale)
{
  hyper h;
  h.factor = scale ? (float)scale[1] : 1;
  h.lr = (float)s->lr;
  h.weight_decay = (float)s->weight_decay;
  h.kept = (float)(1 - s->lr * s->weight_decay);
  h.beta1 = (float)s->beta1;
  h.rest1 = (float)(1 - s->beta1);
  h.beta2 = (float)s->beta2;
  h.rest2 = (float)(1 - s->beta2);
  h.step_size = (float)(s->lr / s->bias_correction1);
  h.root = (float)(1 / sqrt(s->bias_correction2));
  h.eps = (float)s->eps;
  h.initial = (float)s->initial_accumulator;
  h.momentum = (float)s->momentum;
  h.first = s->step == 0;
  h.groups = (float)s->norm_groups;
  return h;
}

/* ---- an element ---- */

/* Values that depend on the hyperparameters and are the same for all elements of a part. */
typedef struct choice {
  float kept, l2; /* p = kept * p; g = g + l2 * p */
  bool nesterov;
  float keep, take; /* factors of the averages */
} choice;

template <enum kind K> static __device__ inline choice choose(const hyper &h, uint32_t flags, double factor)
{
  choice c = {1, flags & NO_DECAY ? 0 : h.weight_decay, (flags & NESTEROV) != 0, 0, (float)factor};
  if (K == LION && !(flags & NO_DECAY)) c.kept = h.kept;
  if (K == ADAM && (flags & DECOUPLED)) {
    if (!(flags & NO_DECAY)) c.kept = h.kept;
    c.l2 = 0;
  }
  if (K == EMA) {
    const double decay = h.first ? 0 : factor;
    c.keep = (float)decay;
    c.take = (float)(1 - decay);
  }
  return c;
}

/* x: the values that change, in the order of the operation's outputs. */
template <enum kind K> static __device__ inline void update(const hyper &h, const choice &c, float read, float *x)
{
  if constexpr (K == ADAM || K == YOGI) {
    float g = h.factor * read;
    if (c.l2 != 0) g = fmaf(c.l2, x[0], g);
    x[1] = fmaf(h.beta1, x[1], h.rest1 * g);
    if constexpr (K == ADAM) {
      x[2] = fmaf(h.beta2, x[2], h.rest2 * g * g);
    } else {
      const float v = x[2] + h.initial, square = g * g;
      x[2] = fmaf(v > square ? -h.rest2 : v < square ? h.rest2 : 0.0f, square, v);
    }
    x[0] = fmaf(c.kept, x[0], -(h.step_size * x[1] / fmaf(sqrtf(x[2]), h.root, h.eps)));
  } else if constexpr (K == ADAGRAD) {
    const float d = fmaf(c.l2, x[0], h.factor * read);
    x[1] = fmaf(d, d, x[1] + h.initial);
    x[0] -= h.lr * d / (sqrtf(x[1]) + h.eps);
  } else if constexpr (K == SGD) {
    const float d = fmaf(c.l2, x[0], h.factor * read);
    x[1] = fmaf(h.momentum, x[1], d);
    x[0] = fmaf(-h.lr, c.nesterov ? fmaf(h.momentum, x[1], d) : x[1], x[0]);
  } else if constexpr (K == LION) {
    const float g = h.factor * read, direction = fmaf(h.beta1, x[1], h.rest1 * g);
    x[0] = fmaf(c.kept, x[0], direction > 0 ? -h.lr : direction < 0 ? h.lr : 0.0f);
    x[1] = fmaf(h.beta2, x[1], h.rest2 * g);
  } else if constexpr (K == EMA) {
    x[0] = fmaf(c.keep, x[0], c.take * read);
  } else {
    x[0] = fmaf(c.take, read / h.groups - x[0], x[0]);
  }
}

/* ---- the kernel ---- */

template <enum kind K>
static __device__ inline void update_piece(const hyper &h, const cuda_table_entry &e, int64_t start)
{
  constexpr int CHANGED = changed_of<K>, P = cuda_pack<float>::count;
  const choice c = choose<K>(h, e.flags, e.factor);
  const float *read = static_cast<const float *>(e.tensor[0]);
  const int64_t end = cuda_min(e.count, start + CUDA_UPDATE_PIECE), whole = end / P * P;
  for (int64_t i = start + P * threadIdx.x; i < whole; i += P * CUDA_THREADS) {
    cuda_pack<float> r, x[CHANGED];
    r.load(read + i);
#pragma unroll
    for (int t = 0; t < CHANGED; t++) x[t].load(static_cast<const float *>(e.tensor[1 + t]) + i);
#pragma unroll
    for (int k = 0; k < P; k++) {
      float value[CHANGED];
#pragma unroll
      for (int t = 0; t < CHANGED; t++) value[t] = x[t].v[k];
      update<K>(h, c, r.v[k], value);
#pragma unroll
      for (int t = 0; t < CHANGED; t++) x[t].v[k] = value[t];
    }
#pragma unroll
    for (int t = 0; t < CHANGED; t++) x[t].store(static_cast<float *>(e.tensor[1 + t]) + i);
  }
  const int64_t i = whole + threadIdx.x; /* fewer than P elements are left */
  if (i < end) {
    float value[CHANGED];
#pragma unroll
    for (int t = 0; t < CHANGED; t++) value[t] = static_cast<const float *>(e.tensor[1 + t])[i];
    update<K>(h, c, read[i], value);
#pragma unroll
    for (int t = 0; t < CHANGED; t++) static_cast<float *>(e.tensor[1 + t])[i] = value[t];
  }
}

template <enum kind K, typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    update_kernel(const __grid_constant__ TABLE table, const cuda_control *control)
{
  __shared__ hyper h;
  if (cuda_refused(control)) return;
  if (threadIdx.x == 0) h = make_hyper(&control->step, table.head.scale);
  __syncthreads();
  for (uint32_t part = blockIdx.x; part < table.head.parts; part += gridDim.x) {
    const cuda_table_entry &e = table.entry[cuda_table_find(table.entry, table.head.entries, part)];
    update_piece<K>(h, e, (int64_t)(part - e.first) * CUDA_UPDATE_PIECE);
  }
}

/* ---- launching ---- */

template <enum kind K>
static brim_status launch_table(cuda_backend *b, const cuda_table *table, const cuda_control *control)
{
  if (table->head.entries == 0) return BRIM_OK;
  const cuda_geometry g = cuda_stride((int64_t)table->head.parts * CUDA_THREADS, 1, b->processors);
  if (table->head.entries > CUDA_TABLE_FEW) return cuda_launch(b, update_kernel<K, cuda_table>, g, *table, control);
  cuda_table_few few;
  memcpy(&few, table, sizeof few);
  return cuda_launch(b, update_kernel<K, cuda_table_few>, g, few, control);
}

/* Makes an entry: first the tensor that is only read, then those that change, which are both the other inputs and the
 * outputs. flags: those of the operation. */
template <enum kind K> static brim_status make_entry(const brim_launch *launch, uint32_t flags, cuda_table_entry *e)
{
  constexpr uint32_t READ = K == EMA ? 0 : 1;
  const brim_node *n = launch->node;
  *e = {};
  e->count = brim_shape_count(&n->in[0]->shape);
  e->tensor[0] = launch->in[READ];
  for (uint32_t t = 0, i = 0; t < changed_of<K>; t++, i++) {
    if (i == READ) i++;
    e->tensor[1 + t] = launch->out[t];
    if (launch->in[i] != launch->out[t]) return brim_fail(BRIM_EINTERNAL, "%s '%s' is not in place", n->op, n->name);
  }
  if (K == EMA) e->factor = n->attr.ema.decay;
  if (K == MOVING_AVERAGE) e->factor = n->attr.moving_average.momentum;
  if (is_optimizer<K>)
    e->flags = flags | (n->attr.update.no_decay ? NO_DECAY : 0) | (n->attr.update.nesterov ? NESTEROV : 0);
  return BRIM_OK;
}

template <enum kind K> static const double *scale_of(const brim_launch *launch)
{
  const brim_node *n = launch->node;
  const bool scaled = is_optimizer<K> && n->attr.update.scaled;
  return scaled ? static_cast<const double *>(launch->in[n->in_count - 1]) : nullptr;
}

/* Runs `count` nodes of one operation. No node reads the result of another one. */
template <enum kind K, uint32_t FLAGS>
static brim_status run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  cuda_table table;
  const cuda_control *control = cuda_control_of(b, launch[0]);
  if (!control) return BRIM_EDEVICE;
  cuda_table_clear(&table, scale_of<K>(launch[0]));
  for (size_t i = 0; i < count; i++) {
    cuda_table_entry e;
    BRIM_TRY(make_entry<K>(launch[i], FLAGS, &e));
    const double *scale = scale_of<K>(launch[i]);
    const int64_t parts = cuda_update_parts(e.count);
    if (scale == table.head.scale && cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX)) continue;
    BRIM_TRY(launch_table<K>(b, &table, control));
    cuda_table_clear(&table, scale);
    cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX);
  }
  return launch_table<K>(b, &table, control);
}

template <enum kind K, uint32_t FLAGS> static CUDA_RUN(run)
{
  return run_all<K, FLAGS>(static_cast<cuda_backend *>(self), &launch, 1);
}

#define UPDATE(id, K, FLAGS)                                                                                           \
  BRIM_KERNEL(id) = {.op = #id, .run = run<K, FLAGS>};                                                                 \
  CUDA_GATHERING(id, (run_all<K, FLAGS>), true)
UPDATE(adamw, ADAM, DECOUPLED);
UPDATE(adam, ADAM, 0);
UPDATE(yogi, YOGI, 0);
UPDATE(adagrad, ADAGRAD, 0);
UPDATE(sgd, SGD, 0);
UPDATE(lion, LION, 0);
UPDATE(ema, EMA, 0);
UPDATE(moving_average, MOVING_AVERAGE, 0);

static CUDA_RUN(zero_run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  return cuda_zero(b, launch->out[0], launch->node->out[0]->bytes, "zeroing a gradient");
}
BRIM_KERNEL(zero) = {.op = "zero", .run = zero_run};
