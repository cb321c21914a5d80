/* The optimizers' updates: one pass over a parameter, its gradient and its state, in pieces of fixed size.
 *
 * AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019), as PyTorch computes it:
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps)
 * Adam the same without the first line, and with g + weight_decay * p in place of g.
 * SGD with momentum, plain or Nesterov's:
 *     d = g + weight_decay * p
 *     velocity = momentum * velocity + d
 *     p = p - lr * velocity   or   p - lr * (d + momentum * velocity) */
#include <math.h>

#include "cpu.h"

enum { PIECE = 16384 }; /* elements a task: 64 KiB of each tensor */

typedef struct update {
  const cpu_simd *simd;
  const brim_launch *launch;
  int64_t count;
  cpu_adam adam;
  cpu_sgd sgd;
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

static update make_update(const cpu_backend *b, const brim_launch *launch)
{
  return (update){.simd = b->simd, .launch = launch, .count = brim_shape_count(&launch->node->in[0]->shape)};
}

static double weight_decay(const brim_launch *launch)
{
  return launch->node->attr.update.no_decay ? 0 : launch->step->weight_decay;
}

static brim_status run_adam(cpu_backend *b, const brim_launch *launch, double decay, double l2)
{
  const brim_step *s = launch->step;
  update u = make_update(b, launch);
  u.adam = (cpu_adam){.decay = (float)(1 - s->lr * decay),
                      .l2 = (float)l2,
                      .beta1 = (float)s->beta1,
                      .beta2 = (float)s->beta2,
                      .one_beta1 = (float)(1 - s->beta1),
                      .one_beta2 = (float)(1 - s->beta2),
                      .step_size = (float)(s->lr / s->bias_correction1),
                      .root = (float)sqrt(s->bias_correction2),
                      .eps = (float)s->eps};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), adam_piece, &u);
  return BRIM_OK;
}

CPU_RUN(cpu_adamw_run)
{
  return run_adam(self, launch, weight_decay(launch), 0);
}

CPU_RUN(cpu_adam_run)
{
  return run_adam(self, launch, 0, weight_decay(launch));
}

CPU_RUN(cpu_sgd_run)
{
  cpu_backend *b = self;
  update u = make_update(b, launch);
  u.sgd = (cpu_sgd){.lr = (float)launch->step->lr,
                    .momentum = (float)launch->step->momentum,
                    .weight_decay = (float)weight_decay(launch),
                    .nesterov = launch->node->attr.update.nesterov};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), sgd_piece, &u);
  return BRIM_OK;
}
