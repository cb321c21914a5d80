/* Divides the work of norms into blocks: layer norm and RMS norm by rows, batch norm and group norm by pieces of a
 * channel. The division depends on shapes alone, so sums are the same on every device. */
#ifndef CUDA_NORM_GEOMETRY_H
#define CUDA_NORM_GEOMETRY_H
#include <stdbool.h>

#include "divider.h"
#include "geometry.h"

#define CUDA_NORM_WARPS (CUDA_THREADS / CUDA_WARP)

/* ---- rows ---- */

#define CUDA_NORM_ROW_THREADS 512
/* The values of a row that a thread can hold in registers. HELD: forward. GRAD_HELD: backward, for each of x, dy and
 * the sums of both gradients. NARROW_HELD: in both passes, if values are loaded one by one, each from its own
 * address. */
#define CUDA_NORM_HELD 32
#define CUDA_NORM_GRAD_HELD 16
#define CUDA_NORM_NARROW_HELD 8
/* The number of partial sums of a weight's gradient. It equals the blocks that an H100 runs at a time: two per
 * multiprocessor with CUDA_THREADS or more threads, and up to four times as many if they are smaller. */
#define CUDA_NORM_PARTS 264

/* The threads that work on a row. */
typedef enum cuda_norm_team {
  CUDA_NORM_WARP,  /* a warp, which holds the row */
  CUDA_NORM_BLOCK, /* a block, which holds the row */
  CUDA_NORM_LONG   /* a block, which reads the row once in each pass */
} cuda_norm_team;

typedef struct cuda_norm_rows {
  cuda_norm_team team;
  bool wide; /* loads are 16 bytes; rows then begin at multiples of 16 bytes, and most lanes of a warp have a load */
  cuda_geometry geometry;
} cuda_norm_rows;

/* Returns the division of rows of `length` values. `pack` values are 16 bytes. A thread can hold `held` values:
 * CUDA_NORM_HELD, or in the backward pass CUDA_NORM_GRAD_HELD. */
static inline cuda_norm_rows cuda_norm_rows_of(int64_t rows, int64_t length, int64_t pack, int64_t held)
{
  cuda_norm_rows r = {CUDA_NORM_LONG, length % pack == 0 && length / pack >= CUDA_WARP / 2,
                      cuda_rows(rows, CUDA_NORM_ROW_THREADS)};
  if (!r.wide) held = CUDA_NORM_NARROW_HELD;
  if (length <= CUDA_WARP * held) {
    r.team = CUDA_NORM_WARP;
    r.geometry = cuda_rows(cuda_divide_up(rows, CUDA_NORM_WARPS), CUDA_THREADS);
  } else if (length <= CUDA_NORM_ROW_THREADS * held) {
    r.team = CUDA_NORM_BLOCK;
    r.geometry = cuda_rows(rows, cuda_row_threads(length, cuda_min(held, 16), CUDA_NORM_ROW_THREADS));
  }
  return r;
}

/* Returns the division for the backward pass, in which each block has several rows and computes one partial sum for
 * each column. If rows do not fit into a block, another kernel computes the partial sums, with the geometry of
 * cuda_norm_columns_of: blocks[0] strips of columns and blocks[1] parts. */
static inline cuda_norm_rows cuda_norm_grad_rows_of(int64_t rows, int64_t length, int64_t pack)
{
  cuda_norm_rows r = cuda_norm_rows_of(rows, length, pack, CUDA_NORM_GRAD_HELD);
  const int64_t parts = CUDA_NORM_PARTS * cuda_max(1, CUDA_THREADS / (int64_t)r.geometry.threads);
  if (r.team != CUDA_NORM_LONG) r.geometry.blocks[0] = (unsigned)cuda_min(r.geometry.blocks[0], parts);
  return r;
}
static inline cuda_geometry cuda_norm_columns_of(int64_t rows, int64_t length, int64_t width)
{
  const int64_t strips = cuda_divide_up(length, width * CUDA_THREADS);
  const int64_t parts = cuda_max(1, cuda_min(rows, 4 * CUDA_NORM_PARTS / strips));
  cuda_geometry g = {{(unsigned)strips, (unsigned)cuda_min(parts, CUDA_NORM_PARTS), 1}, CUDA_THREADS, 0};
  return g;
}
/* Returns the number of partial sums of each column. */
static inline int64_t cuda_norm_parts_of(int64_t rows, int64_t length, int64_t pack)
{
  const cuda_norm_rows r = cuda_norm_grad_rows_of(rows, length, pack);
  if (r.team != CUDA_NORM_LONG) return r.geometry.blocks[0];
  return cuda_norm_columns_of(rows, length, r.wide ? pack : 1).blocks[1];
}

/* ---- channels ---- */

/* The division of work on channels. A channel's values in a group of samples, ordered by (sample, place), are divided
 * into pieces of the same size and a shorter last one. In memory they are runs of `places` values ([N][C][P]), or
 * columns ([N][P][C]). With columns, a block takes a strip, tile_columns packs wide, and its threads take several rows
 * at a time. */
typedef struct cuda_norm_cut {
  int64_t samples, channels, places;
  /* Samples of a set, and number of such groups; the last group also has the samples that remain. */
  int64_t group, groups;
  int64_t set_channels;  /* channels of a set */
  int64_t sets;          /* sets in a group of samples */
  int64_t piece, pieces; /* values of a piece; pieces of a channel in all groups */
  int64_t group_pieces;  /* pieces of each group except the last, which also has the pieces that remain */
  int64_t strips;        /* columns: number of strips side by side */
  int32_t columns, wide; /* wide: loads of 16 bytes */
  int32_t warp;          /* runs: 1 if a warp works on a piece, 0 if a block does */
  int32_t tile_columns;  /* columns: packs in a strip's width, a power of two up to 32 */
  cuda_divider by_places, by_channels, by_group, by_set_channels, by_group_pieces, by_strips;
} cuda_norm_cut;

enum {
  CUDA_NORM_WARP_PIECE = 2048,
  CUDA_NORM_BLOCK_PIECE = 8192,
  CUDA_NORM_COLUMN_BLOCKS = 256, /* approximate blocks for a group, if columns are long enough */
  CUDA_NORM_COLUMN_LEAST = 4,    /* minimum values of a column for each thread */
  CUDA_NORM_COLUMN_MOST = 32
};

CUDA_ANYWHERE int64_t cuda_norm_group_samples(const cuda_norm_cut *cut, int64_t g)
{
  return g == cut->groups - 1 ? cut->samples - g * cut->group : cut->group;
}

/* Returns the pieces of each channel in group g. */
CUDA_ANYWHERE int64_t cuda_norm_pieces_of_group(const cuda_norm_cut *cut, int64_t g)
{
  return g == cut->groups - 1 ? cut->pieces - g * cut->group_pieces : cut->group_pieces;
}

static inline void cuda_norm_cut_columns(cuda_norm_cut *cut, int64_t pack)
{
  const int64_t packs = cuda_divide_up(cut->channels, cut->wide ? pack : 1);
  while (cut->tile_columns < packs && cut->tile_columns < CUDA_WARP) cut->tile_columns *= 2;
  cut->strips = cuda_divide_up(packs, cut->tile_columns);
  const int64_t rows = CUDA_THREADS / cut->tile_columns, length = cut->group * cut->places;
  const int64_t each = length * cut->strips / (rows * CUDA_NORM_COLUMN_BLOCKS);
  cut->piece = rows * cuda_max(CUDA_NORM_COLUMN_LEAST, cuda_min(each, CUDA_NORM_COLUMN_MOST));
}

/* group: samples of a set, at most `samples`. */
static inline cuda_norm_cut cuda_norm_cut_of(int64_t samples, int64_t channels, int64_t places, int64_t group,
                                             int64_t set_channels, bool columns, int64_t pack)
{
  cuda_norm_cut cut;
  cut.samples = samples;
  cut.channels = channels;
  cut.places = places;
  cut.group = cuda_min(group, samples);
  cut.groups = samples / cut.group;
  cut.set_channels = set_channels;
  cut.sets = channels / set_channels;
  cut.strips = 1;
  cut.columns = columns;
  cut.wide = (columns ? channels : places) % pack == 0;
  cut.warp = 0;
  cut.tile_columns = 1;
  if (columns) {
    cuda_norm_cut_columns(&cut, pack);
  } else {
    cut.warp = cut.group * places <= CUDA_NORM_WARP_PIECE;
    cut.piece = cut.warp ? CUDA_NORM_WARP_PIECE : CUDA_NORM_BLOCK_PIECE;
  }
  cut.group_pieces = cuda_divide_up(cut.group * places, cut.piece);
  cut.pieces = (cut.groups - 1) * cut.group_pieces +
               cuda_divide_up(cuda_norm_group_samples(&cut, cut.groups - 1) * places, cut.piece);
  cut.by_places = cuda_divider_of(places);
  cut.by_channels = cuda_divider_of(channels);
  cut.by_group = cuda_divider_of(cut.group);
  cut.by_set_channels = cuda_divider_of(set_channels);
  cut.by_group_pieces = cuda_divider_of(cut.group_pieces);
  cut.by_strips = cuda_divider_of(cut.strips);
  return cut;
}

/* The geometry of kernels in which each piece has a block (columns), or a warp or a block (runs). */
static inline cuda_geometry cuda_norm_pieces(const cuda_norm_cut *cut)
{
  if (cut->columns) return cuda_rows(cut->pieces * cut->strips, CUDA_THREADS);
  const int64_t pieces = cut->pieces * cut->channels;
  return cuda_rows(cut->warp ? cuda_divide_up(pieces, CUDA_NORM_WARPS) : pieces, CUDA_THREADS);
}
/* Returns whether a warp, rather than a block, adds up the sums of `pieces` pieces. Large images have thousands of
 * pieces and as few as 64 channels. The choice depends on a group's shape alone, like the pieces themselves. */
static inline bool cuda_norm_is_for_warp(int64_t pieces)
{
  return pieces <= CUDA_WARP;
}
/* The geometry of kernels with a warp, or a block, for each of `count` results. */
static inline cuda_geometry cuda_norm_teams(int64_t count, bool warp)
{
  return cuda_rows(warp ? cuda_divide_up(count, CUDA_NORM_WARPS) : count, CUDA_THREADS);
}
#endif
