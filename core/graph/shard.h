/* Sharding (dist.shard): what the ranks share out between them, as Megatron's distributed optimizer and ZeRO do
 * (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020; stages 1 and 2).
 *
 * Parameters lie in buckets, from the last to the first as the backward pass finishes their gradients. In a bucket each
 * begins at a multiple of BRIM_SHARD_ELEMENTS from its start, and the bucket is filled up to as many parts of equal
 * size as there are ranks, of whole BRIM_SHARD_ELEMENTS each. A rank updates what lies in its parts: of a parameter one
 * slice at most, from a multiple of BRIM_SHARD_ELEMENTS on, so that blocks of 8-bit states are never cut.
 *
 *   optimizer   gradients lie as the parameters do; their sums over the ranks are scattered in place, bucket by bucket.
 *   gradients   a bucket's gradients live only while the backward pass adds to them (graph/shard_gradients.c); then
 *               their sum is scattered, in every micro-batch, and the own part added to what a rank keeps: the own
 * parts of all buckets, one behind the other.
 *
 * Every rank has the moving averages of batch norm whole: they lie behind the buckets, and so do the sums for them,
 * which all ranks get. So are, with `optimizer`, gradients of further uses of a parameter (brim_further), of which a
 * rank then adds its slice to its slice; and always sums for tensors that are made of parameters. */
#ifndef BRIM_GRAPH_SHARD_H
#define BRIM_GRAPH_SHARD_H
#include "base/arena.h"
#include "brim/comm.h"
#include "graph/graph.h"

#define BRIM_SHARD_ELEMENTS 256

/* What of the training state ranks share out between them, in place of each having all of it. */
enum brim_shard { BRIM_SHARD_NONE, BRIM_SHARD_OPTIMIZER, BRIM_SHARD_GRADIENTS };
#define BRIM_SHARD_NAMES "none|optimizer|gradients"

typedef struct brim_shard_bucket {
  uint64_t first; /* element, from the start of the parameters */
  uint64_t part;  /* elements of each rank */
  uint64_t own;   /* where the own part of the gradients lies: element, from the start of the gradients */
} brim_shard_bucket;

typedef struct brim_shards {
  brim_world world;
  bool gradients;            /* are shared out too */
  brim_shard_bucket *bucket; /* in the order in which the backward pass finishes them */
  size_t bucket_count;
  size_t *bucket_of;                     /* by parameter; SIZE_MAX: a buffer */
  uint64_t *elements;                    /* by parameter */
  uint64_t *value_at;                    /* by parameter: element, from the start of the parameters */
  uint64_t *gradient_at;                 /* the same of gradients that are persistent and whole */
  uint64_t *further_at;                  /* the same of those of further uses, by their index */
  uint64_t replicated_at;                /* where gradients begin that every rank has whole */
  uint64_t value_count, gradient_count;  /* elements, with what lies between */
  size_t parameter_count, further_count; /* that it is made for */
} brim_shards;

/* How large the buckets of gradients that are shared out should be: two of them are there at a time, so smaller ones
 * take less memory, down to where the largest parameters decide. `most`, or as many times half of it until no more than
 * a 64th of all gradients could be saved. By the parameters alone, so that all ranks come to the same. */
uint64_t brim_shards_bucket_bytes(const brim_graph *g, uint64_t most);
/* [plan] `g`: of training. `bucket_bytes`: of parameters, at least, before they are filled up. */
brim_shards *brim_shards_make(brim_arena *arena, const brim_graph *g, const brim_world *world, bool gradients,
                              uint64_t bucket_bytes);
/* What the rank updates of a parameter: elements [*first, *first + *count) of it. False, and nothing set, if none. */
bool brim_shards_own(const brim_shards *shards, size_t parameter, int64_t *first, int64_t *count);
/* Where the parameters and gradients of any graph of the plan lie, whole, slices and parts: by tensor, elements from
 * the start of the parameters or of the gradients. Other tensors' are left as they are. */
void brim_shards_find_places(const brim_shards *shards, const brim_graph *g, uint64_t *at);
/* [plan] Puts the gradients of a graph of training into buckets that live only until they are added up. */
brim_status brim_graph_shard_gradients(brim_graph *g, const brim_shards *shards);
#endif
