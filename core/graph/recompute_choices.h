/* For blocks of a chain, and for segments of several blocks: the best choices of nodes to drop at each price per byte.
 * Internal to recompute*.c; recompute_blocks.c explains the method. */
#ifndef BRIM_GRAPH_RECOMPUTE_CHOICES_H
#define BRIM_GRAPH_RECOMPUTE_CHOICES_H
#include "graph/recompute_blocks.h"

#define BRIM_ATOMS_MAX 10   /* limit for atoms of a block */
#define BRIM_SEGMENT_MAX 40 /* blocks in a segment */
#define BRIM_PRICES 7       /* prices per byte */

/* A subset of a block's nodes, or of a segment's blocks. */
typedef struct brim_choice {
  int64_t kept;  /* bytes that are kept for the backward pass */
  int64_t alive; /* including the tensors that are recomputed at once */
  int64_t peak;  /* for a segment: above the bytes that earlier segments keep */
  int64_t work;
  /* For a block: bits of the dropped atoms; and peaks above the bytes of earlier blocks that are alive: before the
   * backward pass needs results from before the block, and from then on. */
  uint32_t atoms;
  int64_t early, late;
  int16_t before; /* for a segment: its choice without the last block; -1: none */
  int16_t last;   /* for a segment: the choice of its last block */
} brim_choice;

/* The figures of a segment's choice, for the inner loop of the search. */
typedef struct brim_choice_need {
  int64_t needs; /* the larger of `peak` and `kept` */
  int64_t kept, work;
  int16_t index; /* index of the choice */
} brim_choice_need;

typedef struct brim_choices {
  brim_choice *item;
  brim_choice_need *need; /* those that need least first; for segments whose end is kept */
  brim_choice_need least; /* the least value of each figure over all choices */
  int count;
} brim_choices;

typedef struct brim_chain_block {
  uint32_t first, end; /* nodes, inclusive */
  uint32_t atoms;      /* sets of nodes that are dropped together; the last is the end, if it may be dropped */
  uint32_t reads[BRIM_ATOMS_MAX]; /* bits of the atoms in this block that an atom reads */
  uint64_t work_of[BRIM_ATOMS_MAX];
  int64_t waits_of[BRIM_ATOMS_MAX];   /* bytes of its results that the backward pass reads */
  int64_t others_of[BRIM_ATOMS_MAX];  /* bytes of its results that the backward pass does not read */
  int64_t scratch_of[BRIM_ATOMS_MAX]; /* workspace of its nodes */
  uint32_t used[BRIM_ATOMS_MAX];      /* the last forward node that reads its results */
  uint32_t wanted[BRIM_ATOMS_MAX]; /* the first node of the backward pass that reads its results; `to` if no node reads
                                      them */
  bool end_drops;                  /* the last atom is the end */
  int64_t waits;                   /* bytes kept for the backward pass if nothing is dropped */
  int64_t before;                  /* bytes that all earlier blocks keep for the backward pass if nothing is dropped */
  uint32_t from, to; /* the block's nodes of the backward pass, without `to`: from the first after those that read later
                        blocks' results, to the last that reads the block's own */
  uint32_t asks;     /* the first of these nodes that reads results from before the block; `to`: none */
  uint32_t outside;  /* bits of the atoms that read results from before the block */
  brim_choices inside[2];                  /* choices with the end kept, and with the end dropped */
  brim_choices open[BRIM_SEGMENT_MAX + 1]; /* by number of blocks: segments that start here and whose end is dropped */
  brim_choices closed[BRIM_SEGMENT_MAX + 1]; /* by number of blocks: segments that start here and whose end is kept */
} brim_chain_block;

/* The input of the search, for a graph. */
typedef struct brim_chain {
  brim_arena *arena;
  brim_chain_block *block;
  size_t count;
  int64_t *during, *before;  /* by node: bytes alive while it runs and right before, if nothing is dropped */
  double price[BRIM_PRICES]; /* work per byte */
} brim_chain;

/* Finds a block's own choices. */
void brim_choices_find_inside(const brim_chain *b, brim_chain_block *k);
/* Finds the choices of all segments that start at a block. `like`: a block from which the same `alike` blocks start, or
 * NULL. */
void brim_choices_find_segments(brim_chain *b, size_t first, const brim_chain_block *like, size_t alike);
/* The period with which blocks repeat from `first` on, and the number of blocks for which they do, in `alike`; 0: they
 * do not repeat. */
size_t brim_choices_find_period(const brim_chain *b, size_t first, size_t *alike);
#endif
