/* The optimizers' updates: one pass over a parameter, its gradient and its state, in pieces of fixed size.
 *
 * AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019), as PyTorch computes it:
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps)
 * SGD with momentum:
 *     velocity = momentum * velocity + (g + weight_decay * p)
 *     p = p - lr * velocity */
#include <math.h>

#include "cpu.h"

enum { PIECE = 16384 }; /* elements a task: 64 KiB of each tensor */

typedef struct update {
  const cpu_simd *simd;
  const brim_launch *launch;
  int64_t count;
  cpu_adamw adamw;
} update;

static const float *in_at(const update *u, int i, int64_t at)
{
  return (const float *)u->launch->in[i] + at;
}

static float *out_at(const update *u, int i, int64_t at)
{
  return (float *)u->launch->out[i] + at;
}

static void adamw_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const int64_t at = task * PIECE;
  u->simd->adamw(&u->adamw, in_at(u, 0, at), in_at(u, 1, at), in_at(u, 2, at), in_at(u, 3, at), out_at(u, 0, at),
                 out_at(u, 1, at), out_at(u, 2, at), cpu_min(PIECE, u->count - at));
}

static void sgd_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const update *u = arg;
  const brim_step *step = u->launch->step;
  const int64_t at = task * PIECE;
  u->simd->sgd((float)step->lr, (float)step->momentum, (float)step->weight_decay, in_at(u, 0, at), in_at(u, 1, at),
               in_at(u, 2, at), out_at(u, 0, at), out_at(u, 1, at), cpu_min(PIECE, u->count - at));
}

CPU_RUN(cpu_adamw_run)
{
  cpu_backend *b = self;
  const brim_step *s = launch->step;
  update u = {.simd = b->simd, .launch = launch, .count = brim_shape_count(&launch->node->in[0]->shape)};
  u.adamw = (cpu_adamw){.decay = (float)(1 - s->lr * s->weight_decay),
                        .beta1 = (float)s->beta1,
                        .beta2 = (float)s->beta2,
                        .one_beta1 = (float)(1 - s->beta1),
                        .one_beta2 = (float)(1 - s->beta2),
                        .step_size = (float)(s->lr / s->bias_correction1),
                        .root = (float)sqrt(s->bias_correction2),
                        .eps = (float)s->eps};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), adamw_piece, &u);
  return BRIM_OK;
}

CPU_RUN(cpu_sgd_run)
{
  cpu_backend *b = self;
  update u = {.simd = b->simd, .launch = launch, .count = brim_shape_count(&launch->node->in[0]->shape)};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), sgd_piece, &u);
  return BRIM_OK;
}
