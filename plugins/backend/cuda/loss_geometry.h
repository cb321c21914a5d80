/* How the losses cut their work: functions of sizes alone, so that a sum's order is the same in every run. */
#ifndef CUDA_LOSS_GEOMETRY_H
#define CUDA_LOSS_GEOMETRY_H
#include <stdbool.h>

#include "geometry.h"

/* The emulated device, for which cases are small, has other limits, so that they meet all that is written for large
 * ones: wide rows, samples in pieces, logits in chunks. */
#ifdef CUDA_EMULATED
#define CUDA_LOSS_WIDE_ABOVE 40
#define CUDA_LOSS_PIECE 64
#define CUDA_LOSS_CHUNK_BYTES ((int64_t)1 << 20)
#else
#define CUDA_LOSS_WIDE_ABOVE 1024
#define CUDA_LOSS_PIECE 16384
#define CUDA_LOSS_CHUNK_BYTES ((int64_t)256 << 20)
#endif

/* A row of classes has a warp for itself, or a block if it is wide: above so many. */
#define CUDA_LOSS_WIDE_THREADS 512 /* at most */
#define CUDA_LOSS_WARPS 4          /* of a block, if each has rows of its own */

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

/* One block adds up CUDA_LOSS_PIECE elements of a sample, for a mean over the sample: how many pieces that makes
 * depends on the sample's size, never on the batch. A multiple of what a thread takes at a time. */
static inline int64_t cuda_loss_pieces(int64_t each)
{
  return cuda_max(1, cuda_divide_up(each, CUDA_LOSS_PIECE));
}

/* Logits that exist in chunks: whole rows, as many as there is room for; a multiple of 128 where that many fit, which
 * fills a product's tiles and keeps a chunk's start aligned. At least one, so with millions of classes it is a row
 * that bounds the scratch (it is never more than the weights that it is made with). */
#define CUDA_LOSS_CHUNK_ROWS 128
static inline int64_t cuda_loss_chunk_rows(int64_t rows, int64_t row_bytes)
{
  const int64_t fit = cuda_max(1, CUDA_LOSS_CHUNK_BYTES / row_bytes);
  return cuda_min(rows, fit < CUDA_LOSS_CHUNK_ROWS ? fit : fit / CUDA_LOSS_CHUNK_ROWS * CUDA_LOSS_CHUNK_ROWS);
}

/* From a row of a chunk to the next: rows start at multiples of 16 bytes, in fp32, bf16 and fp16. */
static inline int64_t cuda_loss_chunk_ld(int64_t classes)
{
  return cuda_divide_up(classes, 8) * 8;
}
#endif
