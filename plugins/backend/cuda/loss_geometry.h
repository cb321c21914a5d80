/* Divides the work of losses by sizes alone, so that a sum's order is the same in every run. */
#ifndef CUDA_LOSS_GEOMETRY_H
#define CUDA_LOSS_GEOMETRY_H
#include <stdbool.h>

#include "geometry.h"

/* The emulated device has lower limits, so that its small cases also test the code for large ones: wide rows, samples
 * in pieces, logits in chunks. */
#ifdef CUDA_EMULATED
#define CUDA_LOSS_WIDE_ABOVE 40
#define CUDA_LOSS_PIECE 64
#define CUDA_LOSS_CHUNK_BYTES ((int64_t)1 << 20)
#define CUDA_METRICS_FEW_ROWS 8
#else
#define CUDA_LOSS_WIDE_ABOVE 1024
#define CUDA_LOSS_PIECE 16384
#define CUDA_LOSS_CHUNK_BYTES ((int64_t)224 << 20)
/* Limit for rows that one block adds up: four for each warp, which takes no longer than another launch. */
#define CUDA_METRICS_FEW_ROWS 128
#endif

/* A row of classes has a warp of its own, or a block if it has more classes than this. */
#define CUDA_LOSS_WIDE_THREADS 512 /* most threads of such a block */
#define CUDA_LOSS_WARPS 4          /* warps of a block in which each warp has its own rows */

static inline bool cuda_loss_is_wide(int64_t classes)
{
  return classes > CUDA_LOSS_WIDE_ABOVE;
}

#define CUDA_LOSS_TEAM_THREADS(wide) ((wide) ? CUDA_LOSS_WIDE_THREADS : CUDA_LOSS_WARPS * CUDA_WARP)

/* per_thread: values that a thread takes at a time. */
static inline cuda_geometry cuda_loss_teams(int64_t rows, int64_t classes, int64_t per_thread)
{
  if (cuda_loss_is_wide(classes)) return cuda_rows(rows, cuda_row_threads(classes, per_thread, CUDA_LOSS_WIDE_THREADS));
  return cuda_rows(cuda_divide_up(rows, CUDA_LOSS_WARPS), CUDA_LOSS_WARPS * CUDA_WARP);
}

/* For a mean over a sample, one block adds up CUDA_LOSS_PIECE of its elements, so the number of pieces depends on the
 * sample's size, never on the batch. A multiple of a thread's pack. */
static inline int64_t cuda_loss_pieces(int64_t each)
{
  return cuda_max(1, cuda_divide_up(each, CUDA_LOSS_PIECE));
}

/* Logits exist in chunks of whole rows, as many as the scratch has room for; a multiple of 128 if that many fit, which
 * fills a product's tiles and keeps a chunk's start aligned. A chunk has at least one row, so with millions of classes
 * one row determines the scratch, which is never larger than the weights. */
#define CUDA_LOSS_CHUNK_ROWS 128
static inline int64_t cuda_loss_chunk_rows(int64_t rows, int64_t row_bytes)
{
  const int64_t fit = cuda_max(1, CUDA_LOSS_CHUNK_BYTES / row_bytes);
  return cuda_min(rows, fit < CUDA_LOSS_CHUNK_ROWS ? fit : fit / CUDA_LOSS_CHUNK_ROWS * CUDA_LOSS_CHUNK_ROWS);
}

/* The elements from a chunk's row to the next. Rows start at multiples of 16 bytes, in fp32, bf16 and fp16. */
static inline int64_t cuda_loss_chunk_ld(int64_t classes)
{
  return cuda_divide_up(classes, 8) * 8;
}
#endif
