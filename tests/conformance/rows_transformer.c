/* A tiny transformer as a whole: forward, loss and backward. */
#include "conformance/bench.h"
#include "conformance/transformer.h"

static brim_tensor *make_transformer(bench *b)
{
  const int64_t kv_heads = bench_pick(b, 1, 2), one = b->o.size == SIZE_ONE;
  transformer_options o = {.kv_heads = kv_heads,
                           .heads = kv_heads * bench_pick(b, 1, 2),
                           .layers = one ? 1 : bench_pick(b, 1, 2),
                           .classes = bench_pick(b, 2, 6),
                           .causal = (int32_t)bench_pick(b, 0, 1),
                           .rotary = (int32_t)bench_pick(b, 0, 1),
                           .approximate = (int32_t)bench_pick(b, 0, 2),
                           .dropout = bench_pick(b, 0, 1) ? 0.2 : 0};
  o.width = o.heads * 2 * bench_pick(b, 1, b->o.size == SIZE_SMALL ? 2 : 10);
  if (bench_pick(b, 0, 1)) o.vocabulary = bench_pick(b, 2, 9);
  /* The length is at least two: with one key the weight is 1, and the gradient of q is only rounding. */
  const int64_t length = bench_pick_extent(b, 2);
  const brim_shape patches = {3, {b->o.batch, length, bench_pick_channels(b)}}, tokens = {2, {b->o.batch, length}};
  brim_tensor *x = o.vocabulary ? bench_indices(b, &tokens, o.vocabulary, "tokens") : bench_input(b, &patches, "x");
  brim_tensor *label = bench_labels(b, o.classes); /* early: see INDEX_TENSORS_MAX */
  brim_tensor *const in[] = {transformer_build(b->g, x, o), label};
  return brim_graph_apply(b->g, "softmax_cross_entropy", "loss", in, 2, NULL);
}
/* The gradient of a query's scores has sum 0: with few similar keys, as in an untrained model, most of the gradient of
 * k's weight cancels. */
BENCH_ROW(transformer) = {"network: transformer", make_transformer, .is_loss = true,  .composite = true,
                          .by_sample = true,      .skips = true,    .error_max = 5e-5};
