/* Rows of the conformance suite: other forms of linear, matmul, and operations that move values. */
#include "conformance/bench.h"

/* Returns a number that is sometimes a little larger than what one task of a kernel holds. */
static int64_t pick_many(bench *b)
{
  return b->o.size == SIZE_ANY && bench_pick(b, 0, 3) == 0 ? 700 : bench_pick_channels(b);
}

/* [N, c, h, w]: the result of a reshape has its channels in blocks where the backend prefers that. */
static brim_tensor *image(bench *b, int64_t c, int64_t h, int64_t w)
{
  if (c % 8 != 0 || bench_pick(b, 0, 2) == 0) return bench_input4(b, c, h, w);
  return brim_reshape(b->g, bench_input2(b, c * h * w), 4, (int64_t[]){b->o.batch, c, h, w});
}

/* [N, ...] of any rank from 2 on, with dimensions that are not all equal; of rank 2 and 4 after the context's
 * operation. */
static brim_tensor *any_rank(bench *b, int32_t least)
{
  brim_shape shape = {(int32_t)bench_pick(b, least, b->o.size == SIZE_SMALL ? 5 : BRIM_DIMS_MAX), {b->o.batch}};
  if (shape.rank == 2) return bench_input2(b, pick_many(b));
  if (shape.rank == 4 || (bench_pick(b, 0, 1) && least <= 4)) {
    const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1);
    return image(b, c, h, bench_pick_extent(b, 1));
  }
  for (int32_t d = 1; d < shape.rank; d++) {
    shape.dim[d] = shape.rank == 3 ? pick_many(b) : bench_pick(b, 1, 4);
    if (b->o.size == SIZE_ONE) shape.dim[d] = 1;
  }
  return bench_input(b, &shape, "x");
}

/* ---- products ---- */

static brim_tensor *make_linear_rows(bench *b)
{
  const brim_shape shape = {3, {b->o.batch, bench_pick_extent(b, 1), pick_many(b)}};
  brim_tensor *x = bench_input(b, &shape, "x");
  const int64_t out = pick_many(b);
  return bench_pick(b, 0, 1) ? brim_linear(b->g, "fc", x, out) : brim_linear_no_bias(b->g, "fc", x, out);
}
BENCH_ROW(linear_rows) = {"linear, rows", make_linear_rows, .by_sample = true};

/* Uses one weight in two layers, as in an autoencoder or a recurrent network. */
static brim_tensor *make_linear_with(bench *b)
{
  const int64_t f = bench_pick_channels(b);
  brim_tensor *x = bench_input2(b, f);
  brim_tensor *weight = brim_parameter_new(b->g, "w", 2, (int64_t[]){f, f}, (brim_init){BRIM_INIT_UNIFORM, 0.5});
  brim_tensor *bias = brim_parameter_new(b->g, "b", 1, &f, (brim_init){BRIM_INIT_UNIFORM, 1});
  x = brim_linear_with(b->g, "first", x, weight, bias);
  return bench_pick(b, 0, 1) ? brim_linear_with(b->g, "second", x, weight, NULL) : x;
}
BENCH_ROW(linear_with) = {"linear, tied", make_linear_with, .by_sample = true};

/* The embedding's table is also the weight of the last layer. */
static brim_tensor *make_tied_embedding(bench *b)
{
  const int64_t count = bench_pick_channels(b), dim = bench_pick_channels(b);
  brim_tensor *index = bench_indices(b, &(brim_shape){2, {b->o.batch, bench_pick_extent(b, 1)}}, count, "index");
  brim_tensor *table = brim_parameter_new(b->g, "table", 2, (int64_t[]){count, dim}, (brim_init){BRIM_INIT_NORMAL, 1});
  return brim_linear_with(b->g, "last", brim_tanh(b->g, brim_embedding_with(b->g, index, table)), table, NULL);
}
BENCH_ROW(tied_embedding) = {"embedding and linear, tied", make_tied_embedding, .composite = true, .by_sample = true,
                             .skips = true};

/* Multiplies matrices for each sample and head, each operand transposed or not. Sizes are up to a few tiles, and
 * sometimes deeper than a packed block. */
static brim_tensor *make_matmul(bench *b)
{
  const int transpose_a = (int)bench_pick(b, 0, 1), transpose_b = (int)bench_pick(b, 0, 1);
  const int64_t heads = bench_pick(b, 0, 5) ? bench_pick(b, 1, 3) : 16, m = bench_pick_channels(b),
                p = bench_pick_channels(b), k = pick_many(b);
  const bool has_heads = bench_pick(b, 0, 1) == 1;
  brim_tensor *in[2];
  for (int i = 0; i < 2; i++) {
    const int64_t rows = i == 0 ? (transpose_a ? k : m) : (transpose_b ? p : k);
    const int64_t columns = i == 0 ? (transpose_a ? m : k) : (transpose_b ? k : p);
    const brim_shape shape = {3, {b->o.batch, rows, columns}};
    in[i] = has_heads ? image(b, heads, rows, columns) : bench_input(b, &shape, i ? "b" : "a");
  }
  return brim_matmul(b->g, in[0], in[1], transpose_a, transpose_b);
}
BENCH_ROW(matmul) = {"matmul", make_matmul, .by_sample = true};

/* ---- moving ---- */

static brim_tensor *make_permute(bench *b)
{
  brim_tensor *x = any_rank(b, 2);
  int32_t order[BRIM_DIMS_MAX] = {0};
  const int32_t rank = brim_shape_of(x).rank;
  for (int32_t d = 1; d < rank; d++) order[d] = d;
  for (int32_t d = rank - 1; d > 1; d--) {
    const int32_t other = (int32_t)bench_pick(b, 1, d), kept = order[d];
    order[d] = order[other];
    order[other] = kept;
  }
  return brim_permute(b->g, x, order);
}
BENCH_ROW(permute) = {"permute", make_permute, .by_sample = true};

static brim_tensor *make_transpose(bench *b)
{
  brim_tensor *x = any_rank(b, 3);
  const int32_t rank = brim_shape_of(x).rank, axis = (int32_t)bench_pick(b, 1, rank - 1);
  return brim_transpose(b->g, x, axis, bench_pick(b, 0, 1) ? -1 : 1);
}
BENCH_ROW(transpose) = {"transpose", make_transpose, .by_sample = true};

/* Has several tiles for every kernel, with few rows, few columns, or many of both. */
static brim_tensor *make_permute_large(bench *b)
{
  static const int64_t some[] = {3, 12, 70, 150};
  static const int32_t order[][4] = {{0, 2, 3, 1}, {0, 3, 1, 2}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 3, 2, 1}};
  const int64_t c = some[bench_pick(b, 0, 3)], h = bench_pick(b, 1, 9), w = some[bench_pick(b, 0, 3)];
  brim_tensor *x = bench_input4(b, c, h, w);
  if (bench_pick(b, 0, 1)) x = brim_permute(b->g, x, order[bench_pick(b, 0, 4)]);
  return brim_permute(b->g, x, order[bench_pick(b, 0, 4)]);
}
BENCH_ROW(permute_large) = {"permute, large", make_permute_large, .by_sample = true, .large = true};

/* The inputs have different sizes along the axis; for rank 4 their channels may be in blocks. */
static brim_tensor *make_concat(bench *b)
{
  const int32_t count = (int32_t)bench_pick(b, 1, 4), rank = bench_pick(b, 0, 2) ? 4 : 2;
  const int32_t axis = rank == 2 ? 1 : (int32_t)bench_pick(b, 1, 3);
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  brim_tensor *x[5];
  for (int32_t i = 0; i < count; i++)
    x[i] = rank == 2 ? bench_input2(b, bench_pick_channels(b))
                     : image(b, axis == 1 ? bench_pick_channels(b) : c, axis == 2 ? bench_pick_extent(b, 1) : h,
                             axis == 3 ? bench_pick_extent(b, 1) : w);
  x[count] = x[0]; /* the first input may occur twice */
  return brim_concat(b->g, count + (int32_t)bench_pick(b, 0, 1), x, axis);
}
BENCH_ROW(concat) = {"concat", make_concat, .by_sample = true};

static brim_tensor *make_slice(bench *b)
{
  brim_tensor *x = any_rank(b, 2);
  const brim_shape shape = brim_shape_of(x);
  const int32_t axis = (int32_t)bench_pick(b, 1, shape.rank - 1);
  int64_t length = bench_pick(b, 1, shape.dim[axis]), start = bench_pick(b, 0, shape.dim[axis] - length);
  if (shape.dim[axis] % 16 == 0 && bench_pick(b, 0, 1)) { /* whole blocks of channels */
    length = 16;
    start = start / 16 * 16;
  }
  return brim_slice(b->g, x, axis, start, length);
}
BENCH_ROW(slice) = {"slice", make_slice, .by_sample = true, .skips = true};

/* Slices a table: the first row for each place, as position embeddings do. */
static brim_tensor *make_parameter_slice(bench *b)
{
  const int64_t rows = bench_pick_extent(b, 1), f = bench_pick_channels(b), more = bench_pick(b, 0, 3);
  const int64_t start = bench_pick(b, 0, more);
  brim_tensor *x = bench_input(b, &(brim_shape){3, {b->o.batch, rows, f}}, "x");
  brim_tensor *table =
      brim_parameter_new(b->g, "table", 2, (int64_t[]){rows + more, f}, (brim_init){BRIM_INIT_NORMAL, 1});
  return brim_add(b->g, x, brim_slice(b->g, table, 0, start, rows));
}
BENCH_ROW(parameter_slice) = {"slice of a parameter", make_parameter_slice, .composite = true, .skips = true};

/* One of the parts is not used, so its gradient is 0. */
static brim_tensor *make_split(bench *b)
{
  const int64_t c = bench_pick_channels(b);
  const int32_t count = (int32_t)bench_pick(b, 1, 4);
  brim_tensor *part[4], *x = image(b, c * count, bench_pick_extent(b, 1), bench_pick_extent(b, 1));
  brim_split(b->g, x, 1, count, part);
  for (int32_t i = 1; i + 1 < count; i++) part[0] = brim_add(b->g, part[0], part[i]);
  return part[0];
}
BENCH_ROW(split) = {"split", make_split, .by_sample = true, .skips = true};

static brim_tensor *make_pad(bench *b)
{
  brim_tensor *x = any_rank(b, 2);
  const brim_shape shape = brim_shape_of(x);
  int64_t before[BRIM_DIMS_MAX] = {0}, after[BRIM_DIMS_MAX] = {0};
  for (int32_t d = 1; d < shape.rank; d++) {
    before[d] = bench_pick(b, -1, 2) < 0 ? 0 : bench_pick(b, 0, 2);
    after[d] = bench_pick(b, -1, 2) < 0 ? 0 : bench_pick(b, 0, 2);
  }
  if (shape.dim[1] % 16 == 0 && bench_pick(b, 0, 1)) { /* whole blocks of channels */
    before[1] = 16 * bench_pick(b, 0, 1);
    after[1] = 16 * bench_pick(b, 0, 1);
  }
  return brim_pad(b->g, x, before, after, (double)bench_pick(b, -2, 2) / 2);
}
BENCH_ROW(pad) = {"pad", make_pad, .by_sample = true, .skips = true};

/* ---- by index ---- */

static brim_tensor *make_gather(bench *b)
{
  brim_tensor *x = any_rank(b, 2);
  brim_shape shape = brim_shape_of(x);
  const int32_t axis = (int32_t)bench_pick(b, 1, shape.rank - 1);
  const int64_t count = shape.dim[axis];
  shape.dim[axis] = bench_pick(b, 1, count + 2); /* some occur twice */
  return brim_gather(b->g, x, axis, bench_indices(b, &shape, count, "index"));
}
BENCH_ROW(gather) = {"gather", make_gather, .by_sample = true};

/* Gathers along the last dimension, and reads every value several times. */
static brim_tensor *make_gather_large(bench *b)
{
  const brim_shape shape = {3, {b->o.batch, 20, 100}};
  brim_tensor *index = bench_indices(b, &shape, 40, "index");
  return brim_gather(b->g, bench_input(b, &(brim_shape){3, {b->o.batch, 20, 40}}, "x"), 2, index);
}
BENCH_ROW(gather_large) = {"gather, large", make_gather_large, .by_sample = true, .skips = true, .large = true};

/* Looks up more indices than the table has rows, so some rows are read several times. The indices come from a slice,
 * concatenation or transpose, so the row also tests moving integers. */
static brim_tensor *make_embedding(bench *b)
{
  brim_graph *g = b->g;
  const int64_t count = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 2, 30), dim = pick_many(b);
  const int64_t rows = 2 + bench_pick_extent(b, 1), columns = bench_pick_channels(b);
  brim_shape shape = {(int32_t)bench_pick(b, 1, 4), {b->o.batch, rows, columns, 2}};
  brim_tensor *weight = brim_parameter_new(g, "w", 2, (int64_t[]){count, dim}, (brim_init){BRIM_INIT_NORMAL, 1});
  brim_tensor *index = bench_indices(b, &shape, count, "index");
  const int32_t how = shape.rank > 1 ? (int32_t)bench_pick(b, 0, 4) : 0;
  const int64_t before[BRIM_DIMS_MAX] = {0}, after[BRIM_DIMS_MAX] = {0, 1};
  if (how == 1) index = brim_slice(g, index, 1, 0, rows - 1);
  if (how == 2) index = brim_concat(g, 2, (brim_tensor *[]){index, index}, -1);
  if (how == 3) index = brim_transpose(g, index, 1, -1);
  if (how == 4) index = brim_pad(g, index, before, after, (double)(count - 1));
  return brim_embedding_with(g, index, weight);
}
BENCH_ROW(embedding) = {"embedding", make_embedding, .by_sample = true, .skips = true};

/* Looks up words of a large vocabulary about once each, or of a small one hundreds of times each. */
static brim_tensor *embed_many(bench *b, int64_t count)
{
  const brim_shape shape = {2, {b->o.batch, 3000}};
  brim_tensor *weight = bench_parameter(b, "w", &(brim_shape){2, {count, bench_pick(b, 1, 8)}}, 1);
  return brim_embedding_with(b->g, bench_indices(b, &shape, count, "index"), weight);
}
static brim_tensor *make_embedding_large(bench *b)
{
  return embed_many(b, 70000);
}
static brim_tensor *make_embedding_frequent(bench *b)
{
  return embed_many(b, bench_pick(b, 2, 20));
}
BENCH_ROW(embedding_large) = {"embedding, large", make_embedding_large, .by_sample = true, .skips = true,
                              .large = true};
BENCH_ROW(embedding_frequent) = {"embedding, frequent", make_embedding_frequent, .by_sample = true, .skips = true,
                                 .large = true};
