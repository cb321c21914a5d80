/* Sizes of blocks and of their shared memory for tiled products (tile.cuh), for the host. C and C++. */
#ifndef CUDA_TILE_GEOMETRY_H
#define CUDA_TILE_GEOMETRY_H
#include "geometry.h"

#define TILE_THREADS 128
#define TILE_PAD 4 /* additional numbers at the end of each row */

/* Returns the bytes of `rows` rows of `depth` numbers. */
static inline size_t tile_bytes(int rows, int depth)
{
  return (size_t)rows * (size_t)(depth + TILE_PAD) * sizeof(float);
}

/* The division of a head in attention. A block has `rows` queries and loops over tiles of `columns` keys; for dk and
 * dv, it has keys and loops over queries. The result is `size` numbers wide and is divided into chunks of `depth`; a
 * block computes one chunk. */
typedef struct attention_cut {
  int rows, columns, depth;
} attention_cut;

/* Returns the depth for heads of `size` numbers: the smallest depth that holds a head, or the greatest, and then
 * several chunks. */
static inline int attention_depth(int64_t size)
{
  return size <= 32 ? 32 : size <= 64 ? 64 : 128;
}
static inline int64_t attention_chunks(int64_t size)
{
  return cuda_divide_up(size, attention_depth(size));
}

/* The shared memory of a block: tiles of rows, columns and p. At most 99 KiB, the limit on some devices. */
static inline size_t attention_shared_bytes(attention_cut cut)
{
  return tile_bytes(cut.rows, cut.depth) + 2 * tile_bytes(cut.columns, cut.depth) + tile_bytes(cut.rows, cut.columns);
}
/* The backward pass has two tiles of rows, two of columns, and lse and delta of the columns. */
static inline size_t attention_grad_shared_bytes(attention_cut cut)
{
  return 2 * tile_bytes(cut.rows, cut.depth) + 2 * tile_bytes(cut.columns, cut.depth) +
         tile_bytes(cut.rows, cut.columns) + 2 * (size_t)cut.columns * sizeof(float);
}

/* Returns the number of blocks: one for each sample, head, chunk and `rows` of `length` rows. If a grid cannot have
 * that many blocks, blocks loop. */
static inline int64_t attention_blocks(attention_cut cut, int64_t samples, int64_t heads, int64_t length, int64_t size)
{
  return samples * heads * attention_chunks(size) * cuda_divide_up(length, cut.rows);
}
static inline cuda_geometry attention_geometry(int64_t blocks, size_t shared_bytes)
{
  cuda_geometry g = cuda_rows(blocks, TILE_THREADS);
  g.shared_bytes = shared_bytes;
  return g;
}
#endif
