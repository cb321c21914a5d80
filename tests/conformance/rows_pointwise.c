/* Elementwise functions, operations on two tensors that broadcast, sums over axes, softmax. */
#include "conformance/bench.h"

/* Returns an input [N, C, H, W] or [N, F], for operations that take both. */
static brim_tensor *any_input(bench *b)
{
  if (bench_pick(b, 0, 2) == 0) return bench_input2(b, bench_pick_channels(b) * bench_pick_channels(b));
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1);
  return bench_input4(b, c, h, bench_pick_extent(b, 1));
}

/* ---- functions; most are also tested with numbers larger than the bench's ---- */

static brim_tensor *wide_input(bench *b)
{
  brim_tensor *x = any_input(b);
  return bench_pick(b, 0, 1) ? x : brim_scale(b->g, x, 6);
}

static brim_tensor *make_leaky_relu(bench *b)
{
  brim_tensor *x = any_input(b);
  return brim_leaky_relu(b->g, x, (double)bench_pick(b, -1, 9) / 10);
}
BENCH_ROW(leaky_relu) = {"leaky_relu", make_leaky_relu, .by_sample = true};

static brim_tensor *make_gelu_exact(bench *b)
{
  return brim_gelu(b->g, wide_input(b), BRIM_GELU_EXACT);
}
BENCH_ROW(gelu_exact) = {"gelu exact", make_gelu_exact, .by_sample = true};

static brim_tensor *make_gelu_tanh(bench *b)
{
  return brim_gelu(b->g, wide_input(b), BRIM_GELU_TANH);
}
BENCH_ROW(gelu_tanh) = {"gelu tanh", make_gelu_tanh, .by_sample = true};

static brim_tensor *make_gelu_quick(bench *b)
{
  return brim_gelu(b->g, wide_input(b), BRIM_GELU_QUICK);
}
BENCH_ROW(gelu_quick) = {"gelu quick", make_gelu_quick, .by_sample = true};

static brim_tensor *make_silu(bench *b)
{
  return brim_silu(b->g, wide_input(b));
}
BENCH_ROW(silu) = {"silu", make_silu, .by_sample = true};

static brim_tensor *make_sigmoid(bench *b)
{
  return brim_sigmoid(b->g, wide_input(b));
}
BENCH_ROW(sigmoid) = {"sigmoid", make_sigmoid, .by_sample = true};

static brim_tensor *make_tanh(bench *b)
{
  return brim_tanh(b->g, wide_input(b));
}
BENCH_ROW(tanh) = {"tanh", make_tanh, .by_sample = true};

static brim_tensor *make_exp(bench *b)
{
  return brim_exp(b->g, wide_input(b));
}
BENCH_ROW(exp) = {"exp", make_exp, .by_sample = true};

static brim_tensor *make_scale(bench *b)
{
  brim_tensor *x = any_input(b);
  return brim_scale(b->g, x, (double)bench_pick(b, -5, 5) / 3);
}
BENCH_ROW(scale) = {"scale", make_scale, .by_sample = true};

/* ---- formulas ---- */

static const char *const formulas[] = {
    "y = a * exp(-b * b / (2 * s * s)) + max(a, b) * sigmoid(c)",
    "h = tanh(a * s); y = where(b > c, h * h - a, h) + min(min(a, b), c) + log1p(abs(a * c))",
    "y = b", /* a and c are not read, so their gradients are 0; b's is the incoming one */
};

static brim_tensor *make_elementwise(bench *b)
{
  brim_tensor *a = wide_input(b), *second = bench_input(b, &a->shape, "b"), *third = bench_input(b, &a->shape, "c");
  const char *formula = formulas[bench_pick(b, 0, sizeof formulas / sizeof formulas[0] - 1)];
  return brim_elementwise(b->g, formula, BRIM_ELEMENTS("a", a), BRIM_ELEMENTS("b", second), BRIM_ELEMENTS("c", third),
                          BRIM_NUMBER("s", 0.5));
}
BENCH_ROW(elementwise) = {"elementwise", make_elementwise, .by_sample = true};

static brim_tensor *make_softplus(bench *b)
{
  return brim_softplus(b->g, wide_input(b));
}
BENCH_ROW(softplus) = {"softplus", make_softplus, .by_sample = true};

static brim_tensor *make_mish(bench *b)
{
  return brim_mish(b->g, wide_input(b));
}
BENCH_ROW(mish) = {"mish", make_mish, .by_sample = true};

static brim_tensor *make_hardswish(bench *b)
{
  return brim_hardswish(b->g, wide_input(b));
}
BENCH_ROW(hardswish) = {"hardswish", make_hardswish, .by_sample = true};

static brim_tensor *make_silu_mul(bench *b)
{
  brim_tensor *gate = wide_input(b);
  return brim_silu_mul(b->g, gate, bench_input(b, &gate->shape, "up"));
}
BENCH_ROW(silu_mul) = {"silu_mul", make_silu_mul, .by_sample = true};

static brim_tensor *make_gelu_tanh_mul(bench *b)
{
  brim_tensor *gate = wide_input(b);
  return brim_gelu_tanh_mul(b->g, gate, bench_input(b, &gate->shape, "up"));
}
BENCH_ROW(gelu_tanh_mul) = {"gelu_tanh_mul", make_gelu_tanh_mul, .by_sample = true};

static brim_tensor *make_softcap(bench *b)
{
  return brim_softcap(b->g, wide_input(b), (double)bench_pick(b, 1, 60) / 2);
}
BENCH_ROW(softcap) = {"softcap", make_softcap, .by_sample = true};

/* ---- two operands ---- */

typedef brim_tensor *binary(brim_graph *g, brim_tensor *a, brim_tensor *b);

/* Returns a denominator that is far from 0. */
static brim_tensor *divisor(bench *b, brim_tensor *x)
{
  return brim_exp(b->g, x);
}

/* Gives the operation another operand of the same shape: another input, the first one again, or the result of a relu of
 * it. */
static brim_tensor *make_equal(bench *b, binary *of, bool divides)
{
  brim_tensor *x = any_input(b), *other = x;
  const brim_shape shape = brim_shape_of(x);
  const int64_t which = bench_pick(b, 0, 2);
  if (which == 0) other = brim_relu(b->g, x);
  if (which == 1) other = bench_input(b, &shape, "other");
  return of(b->g, x, divides ? divisor(b, other) : other);
}

/* Returns a shape that broadcasts to `shape`: some dimensions are 1, and if it has no samples, leading ones may be
 * missing. */
static brim_shape narrowed(bench *b, const brim_shape *shape, bool has_samples)
{
  brim_shape out = *shape;
  const int32_t missing = has_samples ? 0 : (int32_t)bench_pick(b, 0, shape->rank - 1);
  for (int32_t d = has_samples ? 1 : 0; d < shape->rank; d++)
    if (bench_pick(b, 0, 1) || (d == 0 && !has_samples)) out.dim[d] = 1;
  out.rank -= missing;
  for (int32_t d = 0; d < out.rank; d++) out.dim[d] = out.dim[d + missing];
  return out;
}

static brim_shape any_shape(bench *b)
{
  brim_shape shape = {(int32_t)bench_pick(b, 2, 5), {b->o.batch}};
  for (int32_t d = 1; d < shape.rank; d++)
    shape.dim[d] = shape.rank < 4 ? bench_pick_channels(b) : bench_pick_extent(b, 1);
  return shape;
}

/* Broadcasts the other operand: a parameter, or an input in which dimensions other than the samples may be 1. It may be
 * on either side, except that a result of parameters has no samples by which it could be split. */
static brim_tensor *make_broadcast(bench *b, binary *of, bool divides)
{
  const bool after = bench_pick(b, 0, 1), samples = bench_pick(b, 0, 2) == 0, turned = bench_pick(b, 0, 1);
  brim_tensor *x = NULL;
  if (!after) {
    const brim_shape shape = any_shape(b);
    x = bench_input(b, &shape, "x");
  } else {
    x = any_input(b);
  }
  const brim_shape shape = brim_shape_of(x), small = narrowed(b, &shape, samples);
  brim_tensor *other = samples ? bench_input(b, &small, "other") : bench_parameter(b, "p", &small, 1);
  if (turned || (divides && !samples)) return of(b->g, other, divides ? divisor(b, x) : x);
  return of(b->g, x, divides ? divisor(b, other) : other);
}

/* Broadcasts both operands: [N,C,1] and [N,1,F], or a parameter [F]. Some results have no samples; their gradient is
 * summed before it reaches the parameters. */
static brim_tensor *make_outer(bench *b, binary *of, bool divides)
{
  const int64_t c = bench_pick_channels(b), f = bench_pick_channels(b);
  const brim_shape row = {2, {c, 1}}, column = {1, {f}}, left = {3, {b->o.batch, c, 1}},
                   right = {3, {b->o.batch, 1, f}};
  brim_tensor *x = bench_input(b, &left, "x"), *y = bench_input(b, &right, "y");
  brim_tensor *table =
      of(b->g, bench_parameter(b, "row", &row, 1),
         divides ? divisor(b, bench_parameter(b, "column", &column, 1)) : bench_parameter(b, "column", &column, 1));
  brim_tensor *outer = of(b->g, x, divides ? divisor(b, y) : y);
  return of(b->g, outer, divides ? divisor(b, table) : table);
}

#define BINARY(id, divides)                                                                                            \
  static brim_tensor *make_##id##_equal(bench *b)                                                                      \
  {                                                                                                                    \
    return make_equal(b, brim_##id, divides);                                                                          \
  }                                                                                                                    \
  BENCH_ROW(id##_equal) = {#id, make_##id##_equal, .by_sample = true, .skips = divides};                               \
  static brim_tensor *make_##id##_broadcast(bench *b)                                                                  \
  {                                                                                                                    \
    return make_broadcast(b, brim_##id, divides);                                                                      \
  }                                                                                                                    \
  BENCH_ROW(id##_broadcast) = {#id " broadcast", make_##id##_broadcast, .by_sample = true, .skips = divides};          \
  static brim_tensor *make_##id##_outer(bench *b)                                                                      \
  {                                                                                                                    \
    return make_outer(b, brim_##id, divides);                                                                          \
  }                                                                                                                    \
  BENCH_ROW(id##_outer) = {#id " outer", make_##id##_outer, .skips = true}
BINARY(add, false);
BINARY(sub, false);
BINARY(mul, false);
BINARY(div, true);

/* ---- sums ---- */

typedef brim_tensor *reduction(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep);

static brim_tensor *make_reduction(bench *b, reduction *of)
{
  brim_tensor *x = NULL;
  if (bench_pick(b, 0, 1)) {
    const brim_shape shape = any_shape(b);
    x = bench_input(b, &shape, "x");
  } else {
    x = any_input(b);
  }
  const int32_t rank = brim_shape_of(x).rank, first = (int32_t)bench_pick(b, 1, rank - 1);
  int32_t axes[BRIM_DIMS_MAX] = {first}, count = 1;
  for (int32_t d = 1; d < rank; d++)
    if (d != first && bench_pick(b, 0, 1)) axes[count++] = d - rank; /* from the end */
  return of(b->g, x, count, axes, (int)bench_pick(b, 0, 1));
}

static brim_tensor *make_sum(bench *b)
{
  return make_reduction(b, brim_sum);
}
BENCH_ROW(sum) = {"sum", make_sum, .by_sample = true};

static brim_tensor *make_mean(bench *b)
{
  return make_reduction(b, brim_mean);
}
BENCH_ROW(mean) = {"mean", make_mean, .by_sample = true};

/* ---- softmax ---- */

/* Returns an input in which some rows are so long that vector sums take several blocks. */
static brim_tensor *softmax_input(bench *b)
{
  if (b->o.size == SIZE_ANY && bench_pick(b, 0, 2) == 0) return bench_input2(b, bench_pick(b, 1000, 3000));
  return wide_input(b);
}

static brim_tensor *make_softmax(bench *b)
{
  return brim_softmax(b->g, softmax_input(b));
}
BENCH_ROW(softmax) = {"softmax", make_softmax, .by_sample = true};

static brim_tensor *make_log_softmax(bench *b)
{
  return brim_log_softmax(b->g, softmax_input(b));
}
BENCH_ROW(log_softmax) = {"log_softmax", make_log_softmax, .by_sample = true};

/* ---- larger than a cache, split into many tasks ---- */

static brim_tensor *large_input(bench *b)
{
  return bench_input(b, &(brim_shape){4, {b->o.batch, 6, 70, 67}}, "x");
}

static brim_tensor *make_large_function(bench *b)
{
  return brim_gelu(b->g, large_input(b), (int32_t)bench_pick(b, BRIM_GELU_EXACT, BRIM_GELU_QUICK));
}
BENCH_ROW(large_function) = {"gelu, large", make_large_function, .by_sample = true, .large = true};

static brim_tensor *make_large_broadcast(bench *b)
{
  const brim_shape channels = {3, {6, 1, 1}}, rows = {2, {70, 67}};
  brim_tensor *x = brim_mul(b->g, large_input(b), bench_parameter(b, "scale", &channels, 1));
  return brim_add(b->g, x, bench_parameter(b, "shift", &rows, 1));
}
BENCH_ROW(large_broadcast) = {"broadcast, large", make_large_broadcast, .by_sample = true, .large = true};

static brim_tensor *make_large_mean(bench *b)
{
  static const int32_t axes[2][2] = {{1, 3}, {2, 3}};
  return brim_mean(b->g, large_input(b), 2, axes[bench_pick(b, 0, 1)], 0);
}
BENCH_ROW(large_mean) = {"mean, large", make_large_mean, .by_sample = true, .large = true};

/* Has enough terms for a backend to split a sum into parts: side by side, in columns, and in several stretches. */
static brim_tensor *make_long_sum(bench *b)
{
  static const int32_t axes[2] = {1, 2};
  return brim_sum(b->g, bench_input(b, &(brim_shape){3, {b->o.batch, 230, 211}}, "x"), 2, axes, 0);
}
BENCH_ROW(long_sum) = {"sum, long", make_long_sum, .by_sample = true, .large = true};

static brim_tensor *make_long_columns(bench *b)
{
  static const int32_t axes[2] = {1, 2};
  return brim_mean(b->g, bench_input(b, &(brim_shape){4, {b->o.batch, 90, 61, 7}}, "x"), 2, axes, 1);
}
BENCH_ROW(long_columns) = {"mean, long columns", make_long_columns, .by_sample = true, .large = true};

static brim_tensor *make_long_stretches(bench *b)
{
  static const int32_t axes[2] = {1, 3};
  return brim_mean(b->g, bench_input(b, &(brim_shape){4, {b->o.batch, 6, 5, 9000}}, "x"), 2, axes, 0);
}
BENCH_ROW(long_stretches) = {"mean, long stretches", make_long_stretches, .by_sample = true, .large = true};

static brim_tensor *make_large_softmax(bench *b)
{
  return brim_softmax(b->g, bench_input2(b, 20011));
}
BENCH_ROW(large_softmax) = {"softmax, large", make_large_softmax, .by_sample = true, .large = true};
