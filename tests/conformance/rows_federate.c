/* Rows of the operations of a round of federated learning. */
#include "conformance/bench.h"

/* A client's parameter and its copies. They have any rank and odd lengths, and sometimes several pieces. */
typedef struct client {
  brim_shape shape;
  brim_tensor *w, *g, *sum;
} client;

static brim_shape pick_shape(bench *b)
{
  const bool many = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY;
  const int64_t rows = many ? bench_pick(b, 1, 200) : bench_pick_channels(b);
  const int64_t columns = many ? bench_pick(b, 1, 500) : bench_pick_channels(b);
  switch (bench_pick(b, 0, 3)) {
  case 0:
    return (brim_shape){0, {0}};
  case 1:
    return (brim_shape){1, {rows * columns}};
  case 2:
    return (brim_shape){2, {rows, columns}};
  default:
    return (brim_shape){4, {rows, columns, bench_pick(b, 1, 3), 1}};
  }
}

static client pick_client(bench *b, const char *name)
{
  client c = {.shape = pick_shape(b)};
  c.w = bench_parameter(b, name, &c.shape, 1);
  c.g = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &c.shape, "global");
  c.sum = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &c.shape, "sum");
  return c;
}

#define EXACT 1e-30       /* an operation that is exact, also in fp32 */
#define SUMMED 1e-12      /* a sum in another order, in double precision */
#define ROUNDED_ONCE 6e-8 /* a result rounded to fp32 */

static brim_tensor *make_adopt(bench *b)
{
  client c = pick_client(b, "x");
  brim_graph_node_into(b->g, "adopt", "adopt", &c.w, 1, &c.g, 1, NULL);
  return NULL;
}
BENCH_ROW(adopt) = {"adopt", make_adopt, .error_max = EXACT};

/* Computes the distance between two models of two parameters, added up one parameter after the other. */
static brim_tensor *make_distance(bench *b)
{
  static const char *const names[] = {"first", "second"};
  brim_tensor *distance = NULL;
  for (int i = 0; i < 2; i++) {
    const client c = pick_client(b, names[i]);
    brim_tensor *const in[] = {c.w, c.g, distance};
    distance = brim_graph_tensor(b->g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &(brim_shape){1, {2}}, "distance");
    brim_graph_node_into(b->g, "distance", "distance", in, i ? 3 : 2, &distance, 1, NULL);
  }
  return NULL;
}
BENCH_ROW(distance) = {"distance", make_distance, .error_max = SUMMED};

static brim_tensor *make_steer(bench *b)
{
  client c = pick_client(b, "w");
  brim_tensor *control = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &c.shape, "control");
  brim_tensor *gradient = b->g->parameter[0].gradient, *const in[] = {c.w, c.g, gradient, control};
  brim_graph_node_into(b->g, "steer", "steer", in, bench_pick(b, 3, 4), &gradient, 1, NULL);
  return NULL;
}
BENCH_ROW(steer) = {"steer", make_steer, .error_max = ROUNDED_ONCE};

static brim_tensor *make_fold(bench *b)
{
  client c = pick_client(b, "w");
  brim_tensor *const in[] = {c.w, c.g, c.sum};
  brim_graph_node_into(b->g, "fold", "fold", in, 3, &c.sum, 1, NULL);
  return NULL;
}
BENCH_ROW(fold) = {"fold", make_fold, .error_max = EXACT};

static brim_tensor *make_serve(bench *b)
{
  client c = pick_client(b, "x");
  brim_tensor *const in[] = {c.sum, c.w};
  const bool is_buffer = bench_pick(b, 0, 1) == 1;
  brim_tensor *out = is_buffer ? c.w : b->g->parameter[0].gradient;
  brim_graph_node_into(b->g, "serve", "serve", in, is_buffer ? 2 : 1, &out, 1, NULL);
  return NULL;
}
BENCH_ROW(serve) = {"serve", make_serve, .skips = true, .error_max = ROUNDED_ONCE};
