/* For blocks of a chain and for segments, which are blocks put together: the choices of what to drop that are best for
 * some price of a byte. Internal to recompute*.c; recompute_blocks.c says what it is all for. */
#ifndef BRIM_GRAPH_RECOMPUTE_CHOICES_H
#define BRIM_GRAPH_RECOMPUTE_CHOICES_H
#include "graph/recompute_blocks.h"

#define BRIM_ATOMS_MAX 10   /* of a block of more nodes, only so many are chosen freely: those of most bytes */
#define BRIM_SEGMENT_MAX 40 /* blocks in a segment */
#define BRIM_PRICES 7       /* of a byte */

/* A subset of a block's nodes, or of a segment's blocks. */
typedef struct brim_choice {
  int64_t kept;  /* bytes that wait for the backward pass */
  int64_t alive; /* with what is made again at once */
  int64_t peak;  /* of a segment, above what is kept before it */
  int64_t work;
  uint32_t atoms; /* of a block: bits of what is dropped */
  bool reads;     /* of a block: what is made again needs what is before the block */
  int16_t before; /* of a segment: its choice without the last block; -1: none */
  int16_t last;   /* of a segment: the choice of its last block */
} brim_choice;

typedef struct brim_choices {
  brim_choice *item;
  int count;
} brim_choices;

typedef struct brim_chain_block {
  uint32_t first, end;                  /* nodes, inclusive */
  uint32_t atom[BRIM_ATOMS_MAX], atoms; /* nodes that may be dropped, the end last if it may */
  uint32_t reads[BRIM_ATOMS_MAX];       /* atoms of this block that an atom reads: bits */
  int64_t waits_of[BRIM_ATOMS_MAX];     /* bytes of its results that the backward pass reads */
  int64_t others_of[BRIM_ATOMS_MAX];    /* and of those that it does not */
  bool end_drops;                       /* the last atom is the end */
  int64_t waits;                        /* bytes that wait for the backward pass when nothing is dropped */
  int64_t peak;                         /* then, above what waits of the blocks before */
  int64_t late;                         /* the same, from when the backward pass first reads what is before the block */
  uint32_t outside;                     /* atoms that read what is before the block: bits */
  brim_choices inside[2];               /* the end kept, the end dropped */
  brim_choices open[BRIM_SEGMENT_MAX + 1];   /* of segments from here on, of so many blocks, whose end is dropped */
  brim_choices closed[BRIM_SEGMENT_MAX + 1]; /* and kept */
} brim_chain_block;

/* Of a graph: what choosing goes by. */
typedef struct brim_chain {
  const uint64_t *work; /* by node: of making it again */
  brim_arena *arena;
  brim_chain_block *block;
  size_t count;
  double price[BRIM_PRICES]; /* work a byte */
} brim_chain;

/* Finds what to choose from inside a block, by itself. */
void brim_choices_find_inside(const brim_chain *b, brim_chain_block *k);
/* And in all segments from a block on. `like`: a block from which on as many are `alike`; NULL: none. */
void brim_choices_find_segments(brim_chain *b, size_t first, const brim_chain_block *like, size_t alike);
/* After how many blocks they repeat from here on, and in `alike` for how long; 0: they do not. */
size_t brim_choices_find_period(const brim_chain *b, size_t first, size_t *alike);
#endif
