/* The optimizers' updates, element by element and in place; hyperparameters come with the step.
 * Both are PyTorch's, to the order of operations. */
#include "reference.h"

/* AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019, algorithm 2):
 *
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps),   bc = 1 - beta^t */
brim_status reference_adamw(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_step *step = launch->step;
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double decayed = p_old[i] - step->lr * step->weight_decay * p_old[i];
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * g[i];
    v[i] = step->beta2 * v_old[i] + (1 - step->beta2) * g[i] * g[i];
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = decayed - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Stochastic gradient descent with (heavy-ball) momentum; the velocity starts at 0:
 *
 *     velocity = momentum * velocity + (g + weight_decay * p)
 *     p = p - lr * velocity */
brim_status reference_sgd(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_step *step = launch->step;
  const double *p_old = launch->in[0], *g = launch->in[1], *velocity_old = launch->in[2];
  double *p = launch->out[0], *velocity = launch->out[1];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    velocity[i] = step->momentum * velocity_old[i] + (g[i] + step->weight_decay * p_old[i]);
    p[i] = p_old[i] - step->lr * velocity[i];
  }
  return BRIM_OK;
}
