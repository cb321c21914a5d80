/* Shared by the files of Winograd's convolutions: planes cut into tiles. */
#ifndef CPU_CONV_WINOGRAD_H
#define CPU_CONV_WINOGRAD_H
#include "conv.h"
#include "simd_winograd.h"

enum { WINOGRAD_PLACE_GAP = 16 };

/* Values of samples, [samples, channels, plane] with channels in blocks, divided into a convolution's tiles. */
typedef struct cpu_winograd_tiles {
  cpu_winograd_plane plane;
  int64_t channels;
  int64_t before[2];     /* from a tile's first value to its first output: rows and columns */
  int64_t rows, columns; /* rows and columns of tiles in a plane */
} cpu_winograd_tiles;

typedef struct cpu_winograd_place {
  int64_t sample, h, w; /* the position of a tile's first output */
} cpu_winograd_place;

static inline cpu_winograd_place cpu_winograd_place_of(const cpu_winograd_tiles *t, int64_t tile)
{
  const int64_t plane = t->rows * t->columns, at = tile % plane;
  return (cpu_winograd_place){tile / plane, at / t->columns * WINOGRAD_OUT, at % t->columns * WINOGRAD_OUT};
}

/* Returns the floats from one place to the next, with `numbers` in each. Not a multiple of a page: places are written
 * together, and would otherwise fall into the same cache sets. */
static inline int64_t cpu_winograd_step(int64_t numbers)
{
  return numbers + WINOGRAD_PLACE_GAP;
}

static inline uint64_t cpu_winograd_places_bytes(int64_t numbers)
{
  return cpu_aligned((uint64_t)(WINOGRAD_PLACES * cpu_winograd_step(numbers)) * sizeof(float));
}

static inline const cpu_winograd_simd *cpu_winograd_of(const cpu_backend *b)
{
  static const cpu_winograd_simd *const tables[] = {CPU_OF_ISAS(&, cpu_winograd)};
  return tables[b->isa];
}

/* A task's memory between the transforms: the places of the factors and of the result, and the workspace of a product.
 * `first`, `second`: numbers in each place of the two. */
typedef struct cpu_winograd_room {
  float *first, *second, *product;
  int64_t first_step, second_step;
} cpu_winograd_room;

static inline uint64_t cpu_winograd_room_bytes(const cpu_backend *b, int64_t first, int64_t second)
{
  return cpu_winograd_places_bytes(first) + cpu_winograd_places_bytes(second) +
         cpu_aligned(b->simd->gemm_scratch_bytes);
}

/* Returns the room of index `i`. */
static inline cpu_winograd_room cpu_winograd_room_at(const cpu_backend *b, char *rooms, int64_t i, int64_t first,
                                                     int64_t second)
{
  char *at = rooms + (uint64_t)i * cpu_winograd_room_bytes(b, first, second);
  char *second_at = at + cpu_winograd_places_bytes(first);
  return (cpu_winograd_room){.first = (float *)(void *)at,
                             .second = (float *)(void *)second_at,
                             .product = (float *)(void *)(second_at + cpu_winograd_places_bytes(second)),
                             .first_step = cpu_winograd_step(first),
                             .second_step = cpu_winograd_step(second)};
}

/* Transforms `count` tiles: to[p][tile][channel]; places are `step` floats apart. */
void cpu_winograd_transform(cpu_winograd_fn transform, const cpu_winograd_tiles *tiles, const float *values,
                            int64_t first, int64_t count, float *to, int64_t step);
#endif
