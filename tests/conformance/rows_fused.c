/* Rows of operations that do the work of two. Each is made by the fusion pass out of the two, which must find them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "graph/fuse.h"

/* The last node must have become `op`. */
static brim_tensor *fused(bench *b, const char *op, brim_tensor *y)
{
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  if (b->g->status == BRIM_OK && strcmp(b->g->node[b->g->node_count - 1]->op, op) != 0)
    fail_msg("%s was not made: the last node is %s", op, b->g->node[b->g->node_count - 1]->op);
  return y;
}

static brim_tensor *make_linear_relu(bench *b)
{
  const int64_t scale = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY ? bench_pick(b, 1, 30) : 1;
  const int64_t in = scale * bench_pick_channels(b), out = bench_pick_channels(b);
  brim_tensor *x = bench_input2(b, in);
  if (bench_pick(b, 0, 2) == 0)
    return fused(b, "linear+relu", brim_relu(b->g, brim_linear_no_bias(b->g, "fc", x, out)));
  return fused(b, "linear+relu", brim_relu(b->g, brim_linear(b->g, "fc", x, out)));
}
BENCH_ROW(linear_relu) = {"linear+relu", make_linear_relu, .by_sample = true};

/* The two inputs differ, or the other is what dropout's input was made from. */
static brim_tensor *make_dropout_add(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  const bool flat = bench_pick(b, 0, 1) == 0, before = bench_pick(b, 0, 1) == 0;
  brim_tensor *a = flat ? bench_input2(b, c * h) : bench_input4(b, c, h, w);
  brim_tensor *x = bench_pick(b, 0, 1) == 0 ? brim_relu(b->g, a)
                   : flat                   ? bench_input2(b, c * h)
                                            : bench_input4(b, c, h, w);
  brim_tensor *dropped = brim_dropout(b->g, x, (double)bench_pick(b, 1, 9) / 10);
  brim_tensor *y = before ? brim_add(b->g, a, dropped) : brim_add(b->g, dropped, a);
  return b->o.evaluate ? y : fused(b, "dropout+add", y);
}
BENCH_ROW(dropout_add) = {"dropout+add", make_dropout_add, .by_sample = true};
