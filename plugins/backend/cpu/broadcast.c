/* Iterating over shapes that broadcast to each other. */
#include "broadcast.h"

const cpu_broadcast *cpu_broadcast_table(const cpu_backend *b)
{
  static const cpu_broadcast *const tables[] = {CPU_OF_ISAS(&, cpu_broadcast)};
  return tables[b->isa];
}

brim_shape cpu_reduced_shape(const brim_shape *shape, uint32_t axes)
{
  brim_shape reduced = *shape;
  for (int32_t d = 0; d < shape->rank; d++)
    if (axes >> d & 1) reduced.dim[d] = 1;
  return reduced;
}

/* Writes the steps of an operand, in elements, along each dimension of `shape`. */
static void find_steps(const brim_shape *shape, const brim_shape *operand, int64_t step[BRIM_DIMS_MAX])
{
  int64_t stride = 1;
  for (int32_t d = shape->rank - 1; d >= 0; d--) {
    const int32_t at = d - (shape->rank - operand->rank);
    const int64_t length = at < 0 ? 1 : operand->dim[at];
    step[d] = length == 1 ? 0 : stride;
    stride *= length;
  }
}

void cpu_walk_init(cpu_walk *w, const brim_shape *shape, const brim_shape *a, const brim_shape *b)
{
  int64_t step[2][BRIM_DIMS_MAX];
  find_steps(shape, a, step[0]);
  find_steps(shape, b, step[1]);
  *w = (cpu_walk){.rows = 1, .length = 1};
  for (int32_t d = 0; d < shape->rank; d++) {
    const int64_t length = shape->dim[d];
    if (length == 1) continue;
    const int32_t last = w->rank - 1;
    const bool joins = last >= 0 && w->step[0][last] == step[0][d] * length && w->step[1][last] == step[1][d] * length;
    if (!joins) w->dim[w->rank++] = 1;
    w->dim[w->rank - 1] *= length;
    for (int i = 0; i < 2; i++) w->step[i][w->rank - 1] = step[i][d];
  }
  if (w->rank > 0) { /* the last dimension is the row */
    w->rank--;
    w->length = w->dim[w->rank];
    for (int i = 0; i < 2; i++) w->advances[i] = w->step[i][w->rank] != 0;
  }
  for (int32_t d = 0; d < w->rank; d++) w->rows *= w->dim[d];
}
