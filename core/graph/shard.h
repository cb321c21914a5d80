/* Sharding (dist.shard): the ranks divide part of the training state, as Megatron's distributed optimizer and ZeRO do
 * (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020; stages 1 and 2).
 *
 * Parameters lie in buckets, from the last to the first, as the backward pass completes their gradients. In a bucket
 * each parameter starts at a multiple of BRIM_SHARD_ELEMENTS, and the bucket is padded to equal parts for all ranks,
 * each of whole BRIM_SHARD_ELEMENTS. A rank updates the slices of parameters in its parts: at most one slice of a
 * parameter, starting at a multiple of BRIM_SHARD_ELEMENTS, so that blocks of 8-bit states are never divided.
 *
 *   optimizer   gradients lie like the parameters; their sums over the ranks are scattered in place, bucket by bucket.
 *   gradients   a bucket's gradients live only while the backward pass adds to them (graph/shard_gradients.c); then
 * their sum is scattered, in every micro-batch, and each rank adds its part to a buffer that has its parts of all
 * buckets, one after another.
 *
 * Every rank has the whole moving averages of batch norm. They follow the buckets, as do their sums, which all ranks
 * get. With `optimizer`, the gradients of further uses of a parameter (brim_further) follow the buckets too; a rank
 * then adds its slice of them to its slice of the gradient. Sums for tensors made of parameters always follow the
 * buckets. */
#ifndef BRIM_GRAPH_SHARD_H
#define BRIM_GRAPH_SHARD_H
#include "base/arena.h"
#include "brim/comm.h"
#include "graph/graph.h"

#define BRIM_SHARD_ELEMENTS 256

/* The part of the training state that ranks divide, instead of each holding all of it. */
enum brim_shard { BRIM_SHARD_NONE, BRIM_SHARD_OPTIMIZER, BRIM_SHARD_GRADIENTS };
#define BRIM_SHARD_NAMES "none|optimizer|gradients"

typedef struct brim_shard_bucket {
  uint64_t first; /* first element, from the start of the parameters */
  uint64_t part;  /* elements per rank */
  uint64_t own;   /* place of this rank's part of the gradients: its first element, from the start of the gradients */
} brim_shard_bucket;

typedef struct brim_shards {
  brim_world world;
  bool gradients;            /* gradients are sharded too */
  brim_shard_bucket *bucket; /* in the order in which the backward pass completes them */
  size_t bucket_count;
  size_t *bucket_of;  /* by parameter; SIZE_MAX: not sharded (a buffer) */
  uint64_t *elements; /* by parameter */
  uint64_t *value_at; /* by parameter: its first element, from the start of the parameters */
  /* By parameter: the first element of its gradient, among gradients that are persistent and whole. */
  uint64_t *gradient_at;
  uint64_t *further_at;                  /* by index of a further use: the first element of its gradient */
  uint64_t replicated_at;                /* start of the gradients that every rank has whole */
  uint64_t value_count, gradient_count;  /* elements, including gaps */
  size_t parameter_count, further_count; /* sizes of the graph that the shards were made for */
} brim_shards;

/* The size of buckets for sharded gradients. Two buckets exist at a time, so smaller buckets take less memory, until
 * the largest parameters determine it. Starts at `most` and halves it while that saves more than a 64th of all
 * gradients. Depends only on the parameters, so that all ranks agree. */
uint64_t brim_shards_bucket_bytes(const brim_graph *g, uint64_t most);
/* [plan] Divides the parameters of a training graph `g` among the ranks. `bucket_bytes`: at least this many bytes of
 * parameters per bucket, before padding. */
brim_shards *brim_shards_make(brim_arena *arena, const brim_graph *g, const brim_world *world, bool gradients,
                              uint64_t bucket_bytes);
/* The part of a parameter that this rank updates: elements [*first, *first + *count). False, with nothing set, if it
 * has no part. */
bool brim_shards_own(const brim_shards *shards, size_t parameter, int64_t *first, int64_t *count);
/* Sets the places of a graph's parameters and gradients, their slices and parts: by tensor, in elements from the start
 * of the parameters or gradients. Does not change other tensors' entries. */
void brim_shards_find_places(const brim_shards *shards, const brim_graph *g, uint64_t *at);
/* [plan] Moves the gradients of a training graph into buckets that exist only until they are summed over the ranks. */
brim_status brim_graph_shard_gradients(brim_graph *g, const brim_shards *shards);
#endif
