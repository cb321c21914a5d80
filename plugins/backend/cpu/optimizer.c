/* The optimizers' updates: one pass over a parameter, its gradient and its state, in pieces of fixed size.
 *
 * AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019), as PyTorch computes it:
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps)
 * Adam: the same without the first line, and with g + weight_decay * p in place of g. Yogi: as Adam, but
 *     v = v - (1 - beta2) * sign(v - g^2) * g^2
 * Adagrad:
 *     d = g + weight_decay * p
 *     sum = sum + d^2
 *     p = p - lr * d / (sqrt(sum) + eps)
 * SGD with momentum, plain or Nesterov:
 *     d = g + weight_decay * p
 *     velocity = momentum * velocity + d
 *     p = p - lr * velocity   or   p - lr * (d + momentum * velocity)
 * g is the gradient, multiplied by the factor of gradient_scale if the update has one (brim/ops.h). The norm that
 * determines the factor is summed in double precision, in an order that depends on the shapes alone. */
#include <math.h>
#include <string.h>

#include "cpu.h"

enum { PIECE = 16384 }; /* elements of a task: 64 KiB of each tensor */

typedef struct update {
  const cpu_simd *simd;
  const brim_launch *launch;
  int64_t count;
  cpu_adam adam;
  cpu_sgd sgd;
  cpu_adagrad adagrad;
} update;

static const float *in_at(const update *u, int i, int64_t at)
{
  return (const float *)u->launch->in[i] + at;
}

static float *out_at(const update *u, int i, int64_t at)
{
  return (float *)u->launch->out[i] + at;
}

static void adam_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE;
  u->simd->adam(&u->adam, in_at(u, 0, at), in_at(u, 1, at), in_at(u, 2, at), in_at(u, 3, at), out_at(u, 0, at),
                out_at(u, 1, at), out_at(u, 2, at), cpu_min(PIECE, u->count - at));
}

static void sgd_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE;
  u->simd->sgd(&u->sgd, in_at(u, 0, at), in_at(u, 1, at), in_at(u, 2, at), out_at(u, 0, at), out_at(u, 1, at),
               cpu_min(PIECE, u->count - at));
}

static void adagrad_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE;
  u->simd->adagrad(&u->adagrad, in_at(u, 0, at), in_at(u, 1, at), in_at(u, 2, at), out_at(u, 0, at), out_at(u, 1, at),
                   cpu_min(PIECE, u->count - at));
}

static update make_update(const cpu_backend *b, const brim_launch *launch)
{
  return (update){.simd = b->simd, .launch = launch, .count = brim_shape_count(&launch->node->in[0]->shape)};
}

double cpu_gradient_factor(const brim_launch *launch)
{
  const brim_node *n = launch->node;
  return n->attr.update.scaled ? ((const double *)launch->in[n->in_count - 1])[1] : 1;
}

double cpu_weight_decay(const brim_launch *launch)
{
  return launch->node->attr.update.no_decay ? 0 : launch->step->weight_decay;
}

cpu_adam cpu_adam_of(const brim_launch *launch, double decay, double l2)
{
  const brim_step *s = launch->step;
  return (cpu_adam){.decay = (float)(1 - s->lr * decay),
                    .l2 = (float)l2,
                    .beta1 = (float)s->beta1,
                    .beta2 = (float)s->beta2,
                    .one_beta1 = (float)(1 - s->beta1),
                    .one_beta2 = (float)(1 - s->beta2),
                    .step_size = (float)(s->lr / s->bias_correction1),
                    .root = (float)sqrt(s->bias_correction2),
                    .eps = (float)s->eps,
                    .factor = (float)cpu_gradient_factor(launch)};
}

static brim_status run_adam(cpu_backend *b, const brim_launch *launch, cpu_adam how)
{
  update u = make_update(b, launch);
  u.adam = how;
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), adam_piece, &u);
  return BRIM_OK;
}

static CPU_RUN(adamw_run)
{
  return run_adam(self, launch, cpu_adam_of(launch, cpu_weight_decay(launch), 0));
}

static CPU_RUN(adam_run)
{
  return run_adam(self, launch, cpu_adam_of(launch, 0, cpu_weight_decay(launch)));
}

static CPU_RUN(yogi_run)
{
  cpu_adam how = cpu_adam_of(launch, 0, cpu_weight_decay(launch));
  how.is_yogi = true;
  how.initial = (float)launch->step->initial_accumulator;
  return run_adam(self, launch, how);
}

static CPU_RUN(adagrad_run)
{
  cpu_backend *b = self;
  update u = make_update(b, launch);
  u.adagrad = (cpu_adagrad){.lr = (float)launch->step->lr,
                            .weight_decay = (float)cpu_weight_decay(launch),
                            .eps = (float)launch->step->eps,
                            .factor = (float)cpu_gradient_factor(launch),
                            .initial = (float)launch->step->initial_accumulator};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), adagrad_piece, &u);
  return BRIM_OK;
}

static CPU_RUN(sgd_run)
{
  cpu_backend *b = self;
  update u = make_update(b, launch);
  u.sgd = (cpu_sgd){.lr = (float)launch->step->lr,
                    .momentum = (float)launch->step->momentum,
                    .weight_decay = (float)cpu_weight_decay(launch),
                    .factor = (float)cpu_gradient_factor(launch),
                    .nesterov = launch->node->attr.update.nesterov};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), sgd_piece, &u);
  return BRIM_OK;
}

static void ema_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE, count = cpu_min(PIECE, u->count - at);
  const double chosen = u->launch->step->step == 0 ? 0 : u->launch->node->attr.ema.decay;
  const float decay = (float)chosen, rest = (float)(1 - chosen);
  const float *p = in_at(u, 0, at), *old = in_at(u, 1, at);
  float *average = out_at(u, 0, at);
  for (int64_t i = 0; i < count; i++) average[i] = decay * old[i] + rest * p[i];
}

static CPU_RUN(ema_run)
{
  cpu_backend *b = self;
  update u = make_update(b, launch);
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), ema_piece, &u);
  return BRIM_OK;
}

/* ---- the norm of all gradients ---- */

static CPU_PREPARE(squared_norm_prepare)
{
  (void)self, (void)program, (void)state;
  need->workspace_bytes = (uint64_t)cpu_divide_up(brim_shape_count(&node->in[0]->shape), PIECE) * sizeof(double);
  return BRIM_OK;
}

/* Uses several sums, so that additions do not wait for each other. */
static void squares_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  enum { SUMS = 8 };
  const update *u = arg;
  const int64_t at = task * PIECE, count = cpu_min(PIECE, u->count - at);
  const float *x = in_at(u, 0, at);
  double sum[SUMS] = {0}, whole = 0;
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int k = 0; k < SUMS; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
  for (; i < count; i++) sum[0] += (double)x[i] * (double)x[i];
  for (int k = 0; k < SUMS; k++) whole += sum[k];
  ((double *)u->launch->workspace)[task] = whole;
}

static CPU_RUN(squared_norm_run)
{
  cpu_backend *b = self;
  update u = make_update(b, launch);
  const int64_t pieces = cpu_divide_up(u.count, PIECE);
  cpu_pool_run(b->pool, pieces, squares_piece, &u);
  double sum = launch->node->in_count > 1 ? *(const double *)launch->in[1] : 0;
  for (int64_t i = 0; i < pieces; i++) sum += ((const double *)launch->workspace)[i];
  *(double *)launch->out[0] = sum;
  return BRIM_OK;
}

static CPU_RUN(gradient_scale_run)
{
  (void)self;
  const double scale = launch->step->gradient_scale, max_norm = launch->node->attr.clip.max_norm;
  double *out = launch->out[0];
  out[0] = launch->node->in_count > 0 ? scale * sqrt(*(const double *)launch->in[0]) : 0;
  const double limit = max_norm / (out[0] + 1e-6);
  out[1] = scale * (max_norm > 0 && !(limit > 1) ? limit : 1); /* a norm that is NaN gives a NaN factor */
  return BRIM_OK;
}

static void zero_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE;
  memset(out_at(u, 0, at), 0, (size_t)cpu_min(PIECE, u->count - at) * sizeof(float));
}

static CPU_PREPARE(zero_prepare)
{
  (void)self, (void)program, (void)node, (void)state;
  need->overwrites = 1; /* the kernel always writes, and never adds */
  return BRIM_OK;
}

static CPU_RUN(zero_run)
{
  cpu_backend *b = self;
  update u = {.launch = launch, .count = brim_shape_count(&launch->node->out[0]->shape)};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), zero_piece, &u);
  return BRIM_OK;
}

static CPU_PREPARE(accumulate_prepare)
{
  need->overwrites = 1;
  return cpu_plain_prepare(self, program, node, need, state);
}

/* This takes little of a step's time, so it runs on one thread. */
static CPU_RUN(accumulate_run)
{
  const cpu_backend *b = self;
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  const float *x = cpu_plain_input(self, launch, 0);
  float *gradient = launch->out[0];
  for (int64_t at = 0; at < count; at += PIECE) {
    const int64_t piece = cpu_min(PIECE, count - at);
    if (!cpu_adds(launch, 0)) memset(gradient + at, 0, (size_t)piece * sizeof(float));
    b->simd->add(gradient + at, x + at, gradient + at, piece);
  }
  return BRIM_OK;
}

static CPU_RUN(moving_average_run)
{
  (void)self;
  const float momentum = (float)launch->node->attr.moving_average.momentum, groups = (float)launch->step->norm_groups;
  const float *value = launch->in[0], *sum = launch->in[1];
  float *out = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++)
    out[i] = value[i] + momentum * (sum[i] / groups - value[i]);
  return BRIM_OK;
}

CPU_KERNEL(adamw) = {.op = "adamw", .run = adamw_run};
CPU_KERNEL(adam) = {.op = "adam", .run = adam_run};
CPU_KERNEL(yogi) = {.op = "yogi", .run = yogi_run};
CPU_KERNEL(adagrad) = {.op = "adagrad", .run = adagrad_run};
CPU_KERNEL(sgd) = {.op = "sgd", .run = sgd_run};
CPU_KERNEL(ema) = {.op = "ema", .run = ema_run};
CPU_KERNEL(squared_norm) = {.op = "squared_norm", .prepare = squared_norm_prepare, .run = squared_norm_run};
CPU_KERNEL(gradient_scale) = {.op = "gradient_scale", .run = gradient_scale_run};
CPU_KERNEL(zero) = {.op = "zero", .prepare = zero_prepare, .run = zero_run};
CPU_KERNEL(accumulate) = {.op = "accumulate", .prepare = accumulate_prepare, .run = accumulate_run};
CPU_KERNEL(moving_average) = {.op = "moving_average", .run = moving_average_run};
