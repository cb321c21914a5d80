/* The data of a plan's picture: its buffers by operation and offset. A run stores them in its folder (buffers.json), so
 * that its report page can draw the plan without planning again. */
#ifndef BRIM_GRAPH_PIECES_H
#define BRIM_GRAPH_PIECES_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct brim_plan;
struct brim_program;

#define BRIM_PIECES_NAME "buffers.json" /* in a run's folder */
#define BRIM_PIECES_MAX 4096        /* buffers of a plan that are kept: the largest ones, by bytes times operations */
#define BRIM_PIECES_NODES_MAX 65536 /* most operations of a plan whose pieces are kept */

enum brim_piece_kind {
  BRIM_PIECE_PARAMETER,
  BRIM_PIECE_GRADIENT,
  BRIM_PIECE_OPTIMIZER,
  BRIM_PIECE_DATA,
  BRIM_PIECE_PERSISTENT, /* the number of kinds above, which a plan has as persistent parts */
  BRIM_PIECE_FORWARD = BRIM_PIECE_PERSISTENT,
  BRIM_PIECE_AGAIN,    /* recomputed */
  BRIM_PIECE_BACKWARD, /* gradients of activations */
  BRIM_PIECE_SCRATCH,  /* workspace */
  BRIM_PIECE_KINDS
};

/* A buffer. Texts that are missing are "". */
typedef struct brim_piece {
  uint64_t offset, bytes;
  int32_t first, last; /* operations, inclusive */
  enum brim_piece_kind kind;
  const char *tensor, *op, *node; /* "" for the tensor of a workspace; the operation that made it, and its name */
  int32_t dropped;         /* for a recomputed buffer: the operation after which its first copy was dropped; -1: none */
  uint64_t dropped_middle; /* the middle of that copy's range of offsets */
} brim_piece;

typedef struct brim_region {
  uint64_t offset, bytes;
} brim_region;

typedef struct brim_pieces {
  brim_region part[BRIM_PIECE_PERSISTENT]; /* persistent */
  uint64_t persistent_bytes, peak_bytes;
  int32_t nodes, forward; /* numbers of operations: of all, and of the forward pass */
  int32_t live_node;      /* the operation with the most memory in use */
  const char *live_op, *live_name;
  const char *recompute; /* a text about it; "" */
  uint64_t *alive;       /* [nodes] transient bytes in use at each operation */
  brim_piece *piece;     /* [count], sorted by bytes times operations, largest first */
  size_t count, buffers; /* buffers: their number in the plan, before the smallest were left out */
  /* in a federation; lanes 0: none */
  int32_t lanes;
  uint64_t server_bytes, lane_bytes;
  brim_region server[BRIM_PIECE_PERSISTENT];
} brim_pieces;

/* [plan] Collects one program of the plan; in a federation the program belongs to the plan of a lane. Texts belong to
 * the plan or the arena. */
void brim_pieces_collect(brim_arena *arena, const struct brim_plan *plan, const struct brim_program *program,
                         brim_pieces *out);
/* Returns a new reference; NULL for a plan with more than BRIM_PIECES_NODES_MAX operations. */
json_t *brim_pieces_json(const brim_pieces *pieces);
/* Reads the result of brim_pieces_json. False for values that no plan has. Texts belong to `root`. */
bool brim_pieces_read(brim_arena *arena, const json_t *root, brim_pieces *out);
#endif
