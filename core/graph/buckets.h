/* Gradients that are added up over the ranks at a time. Each bucket is a range of the gradients' part of the arena;
 * they are numbered in the order in which the backward pass finishes them, from the last parameters to the first, and
 * all ranks add them up in that order. With shards (graph/shard.h) they are those of its parts that are to be added up
 * once a step. */
#ifndef BRIM_GRAPH_BUCKETS_H
#define BRIM_GRAPH_BUCKETS_H
#include "graph/plan.h"

/* What of a request's gradients is a bucket: `plan` has its persistent part. Nothing for a world of one rank. */
void brim_buckets_make(brim_plan *plan);
/* How large buckets should be for the gradients of a graph of training: `most`, but so that there are about four and
 * sums begin while the backward pass goes on; not so small that messages cost more than what is in them. */
uint64_t brim_buckets_size(const brim_graph *g, uint64_t most);
/* Where each is complete in a program of training, whose nodes are final. */
void brim_buckets_find_ready(const brim_plan *plan, brim_program *program);
/* For a backend that runs programs whole: cuts them in pieces where something is added up over the ranks, or waited
 * for. After everything else has cut them. */
void brim_buckets_cut(brim_plan *plan);
#endif
