/* Buckets: groups of gradients that the ranks sum in one collective. Each bucket is a range of the gradients' part of
 * the arena. Buckets are numbered in the order in which the backward pass completes them, from the last parameters to
 * the first, and all ranks add them up in that order. With shards (graph/shard.h), they contain only the gradients that
 * are summed once a step. */
#ifndef BRIM_GRAPH_BUCKETS_H
#define BRIM_GRAPH_BUCKETS_H
#include "graph/plan.h"

/* Divides the gradients of a plan's request into buckets; the plan's persistent part must be placed. Does nothing for a
 * single rank. */
void brim_buckets_make(brim_plan *plan);
/* The size of buckets for the gradients of a training graph: at most `most`, small enough for about four buckets, so
 * that sums start during the backward pass, but not so small that messages cost more than their contents. */
uint64_t brim_buckets_size(const brim_graph *g, uint64_t most);
/* Finds the node after which each bucket is complete, in a training program with final nodes. */
void brim_buckets_find_ready(const brim_plan *plan, brim_program *program);
/* For a backend that runs whole programs: cuts a program into pieces wherever a sum over the ranks starts or must have
 * finished. Call after all other cuts. */
void brim_buckets_cut(brim_plan *plan);
#endif
