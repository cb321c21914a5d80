/* LSTM: one layer in one direction, whose first state is 0. Steps go forward or backward in time. h and c are the state
 * before a step; u is a hidden unit, and j one of its four gates i, f, g, o:
 *
 *     a[j,u] = b_ih[j,u] + b_hh[j,u] + sum over k of w_ih[j,u,k] * x[t,k] + sum over k of w_hh[j,u,k] * h[k]
 *     i, f, o = 1 / (1 + exp(-a)),  g = tanh(a)
 *     c[t,u] = f*c[u] + i*g,  y[t,u] = o * tanh(c[t,u])
 *
 * The backward pass, with dh = dy[t] + the next step's gradient through w_hh, and dc the sum of dh * o * (1 -
 * tanh(c[t])^2) and the next step's dc * f:
 *
 *     da[i] = dc*g * i*(1-i),  da[f] = dc*c * f*(1-f),  da[g] = dc*i * (1-g^2),  da[o] = dh*tanh(c[t]) * o*(1-o)
 *     dw_ih += da * x[t],  dw_hh += da * h,  db_ih += da,  db_hh += da */
#include <stddef.h>

#include "reference.h"

typedef struct sequence {
  int64_t N, T, H;
  int reverse;
} sequence;

static sequence sequence_of(const brim_launch *launch, const brim_tensor *y)
{
  return (sequence){y->shape.dim[0], y->shape.dim[1], y->shape.dim[2], launch->node->attr.lstm.reverse};
}

/* Returns the element of sample n at step s. That of the previous step is at s - 1. */
static int64_t at(const sequence *q, int64_t n, int64_t s)
{
  return n * q->T + (q->reverse ? q->T - 1 - s : s);
}

static double sigmoid(double a)
{
  return 1 / (1 + exp(-a));
}

/* Returns a[j] for row j of 4H. h may be NULL for zeros. */
static double before_activation(const brim_launch *launch, int64_t F, int64_t H, int64_t j, const double *x,
                                const double *h)
{
  const double *w_ih = launch->in[1], *w_hh = launch->in[2], *b_ih = launch->in[3], *b_hh = launch->in[4];
  double sum = b_ih[j] + b_hh[j];
  for (int64_t k = 0; k < F; k++) sum += w_ih[j * F + k] * x[k];
  for (int64_t k = 0; h && k < H; k++) sum += w_hh[j * H + k] * h[k];
  return sum;
}

REFERENCE(lstm, "lstm")
{
  const sequence q = sequence_of(launch, launch->node->out[0]);
  const int64_t H = q.H, F = launch->node->in[0]->shape.dim[2];
  const double *x = launch->in[0];
  double *y = launch->out[0], *gates = launch->out[1], *cell = launch->out[2];

  for (int64_t n = 0; n < q.N; n++)
    for (int64_t s = 0; s < q.T; s++) {
      const int64_t t = at(&q, n, s), before = at(&q, n, s - 1);
      const double *h = s > 0 ? y + before * H : NULL, *c = s > 0 ? cell + before * H : NULL;
      double *a = gates + t * 4 * H;
      for (int64_t j = 0; j < 4 * H; j++) {
        a[j] = before_activation(launch, F, H, j, x + t * F, h);
        a[j] = j / H == 2 ? tanh(a[j]) : sigmoid(a[j]);
      }
      for (int64_t u = 0; u < H; u++) {
        cell[t * H + u] = a[H + u] * (c ? c[u] : 0) + a[u] * a[2 * H + u];
        y[t * H + u] = a[3 * H + u] * tanh(cell[t * H + u]);
      }
    }
  return BRIM_OK;
}

/* Between two steps, dc * f is stored in dgates, in the previous step's place for da[i]. So dgates must not overwrite
 * gates. */
static brim_status lstm_grad_prepare(void *self, const brim_program_info *program, const brim_node *node,
                                     brim_kernel_need *need, void **state)
{
  (void)self;
  (void)program;
  (void)node;
  (void)state;
  need->no_inplace = 1;
  return BRIM_OK;
}

static brim_status lstm_grad(void *self, const brim_launch *launch)
{
  (void)self;
  const sequence q = sequence_of(launch, launch->node->in[0]);
  const int64_t H = q.H;
  const double *dy = launch->in[0], *gates = launch->in[1], *cell = launch->in[2], *w_hh = launch->in[3];
  double *dgates = launch->out[0];

  for (int64_t n = 0; n < q.N; n++)
    for (int64_t s = q.T - 1; s >= 0; s--) {
      const int64_t t = at(&q, n, s), before = at(&q, n, s - 1), next = at(&q, n, s + 1);
      const double *a = gates + t * 4 * H;
      double *da = dgates + t * 4 * H;
      for (int64_t u = 0; u < H; u++) {
        double dh = dy[t * H + u];
        for (int64_t j = 0; s + 1 < q.T && j < 4 * H; j++) dh += dgates[next * 4 * H + j] * w_hh[j * H + u];
        const double i = a[u], f = a[H + u], g = a[2 * H + u], o = a[3 * H + u];
        const double squashed = tanh(cell[t * H + u]), c = s > 0 ? cell[before * H + u] : 0;
        const double dc = dh * o * (1 - squashed * squashed) + (s + 1 < q.T ? da[u] : 0);
        da[u] = dc * g * i * (1 - i);
        da[H + u] = dc * c * f * (1 - f);
        da[2 * H + u] = dc * i * (1 - g * g);
        da[3 * H + u] = dh * squashed * o * (1 - o);
        if (s > 0) dgates[before * 4 * H + u] = dc * f;
      }
    }
  return BRIM_OK;
}
BRIM_KERNEL(lstm_grad) = {.op = "lstm_grad", .prepare = lstm_grad_prepare, .run = lstm_grad};

REFERENCE(lstm_grad_weight, "lstm_grad_weight")
{
  const sequence q = sequence_of(launch, launch->node->in[1]);
  const int64_t H = q.H, F = launch->node->in[0]->shape.dim[2];
  const double *x = launch->in[0], *y = launch->in[1], *dgates = launch->in[2];
  double *dw_ih = launch->out[0], *dw_hh = launch->out[1], *db_ih = launch->out[2], *db_hh = launch->out[3];

  for (int64_t n = 0; n < q.N; n++)
    for (int64_t s = 0; s < q.T; s++) {
      const int64_t t = at(&q, n, s), before = at(&q, n, s - 1);
      for (int64_t j = 0; j < 4 * H; j++) {
        const double da = dgates[t * 4 * H + j];
        for (int64_t k = 0; k < F; k++) dw_ih[j * F + k] += da * x[t * F + k];
        for (int64_t k = 0; k < H; k++) dw_hh[j * H + k] += da * (s > 0 ? y[before * H + k] : 0);
        db_ih[j] += da;
        db_hh[j] += da;
      }
    }
  return BRIM_OK;
}
