/* Reads the values of weights in the model's type and order. See weights.h. */
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/text.h"
#include "store/weights_parts.h"

#define PIECE_BYTES ((size_t)8 << 20) /* of a file that are read before they are released */

/* A tensor being read. */
typedef struct passage {
  const brim_weights *weights;
  const brim_safetensor *from;
  uint32_t to_dtype;
  size_t from_bytes, to_bytes; /* of an element */
} passage;

static passage passage_of(const brim_weights *w, const brim_safetensor *from, const brim_tensor *to)
{
  return (passage){w, from, to->dtype, brim_dtype_bytes(from->dtype), brim_dtype_bytes(to->dtype)};
}

/* Writes elements first..first+count-1 of the file's tensor to `to`. */
static brim_status pass(const passage *p, size_t first, size_t count, void *to)
{
  const char *from = (const char *)p->from->data + first * p->from_bytes;
  brim_convert(p->to_dtype, to, p->from->dtype, from, count);
  if (brim_all_finite(p->to_dtype, to, count)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s': '%.200s' has a value that is not a finite number", p->weights->request.path,
                   p->from->name);
}

static void forget(const passage *p, size_t first, size_t count)
{
  brim_weights_files_forget(p->weights->files, (const char *)p->from->data + first * p->from_bytes,
                            count * p->from_bytes);
}

static size_t smaller(size_t a, size_t b)
{
  return a < b ? a : b;
}

static brim_status read_straight(const passage *p, size_t count, char *to)
{
  const size_t most = PIECE_BYTES / p->from_bytes;
  for (size_t at = 0; at < count; at += most) {
    const size_t n = smaller(most, count - at);
    BRIM_TRY(pass(p, at, n, to + at * p->to_bytes));
    forget(p, at, n);
  }
  return BRIM_OK;
}

/* Transposes [rows, columns] of the file to [columns, rows]. `row`: a buffer for one row of the file. */
static brim_status read_rows(const passage *p, size_t rows, size_t columns, char *row, char *to)
{
  const size_t bytes = p->to_bytes, some = PIECE_BYTES / p->from_bytes / columns + 1;
  for (size_t r = 0; r < rows; r++) {
    BRIM_TRY(pass(p, r * columns, columns, row));
    for (size_t c = 0; c < columns; c++) memcpy(to + (c * rows + r) * bytes, row + c * bytes, bytes);
    if ((r + 1) % some == 0 || r + 1 == rows) forget(p, r / some * some * columns, (r % some + 1) * columns);
  }
  return BRIM_OK;
}

static brim_status read_transposed(const passage *p, char *to)
{
  const size_t rows = (size_t)p->from->shape.dim[0], columns = (size_t)p->from->shape.dim[1];
  if (rows == 0 || columns == 0) return BRIM_OK;
  char *row = brim_try_malloc(columns * p->to_bytes);
  if (!row) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a row of '%s'", p->from->name);
  const brim_status status = read_rows(p, rows, columns, row, to);
  free(row);
  return status;
}

/* Compares a second tensor in the file with the parameter that has the same values. */
static brim_status compare_twin(const passage *p, size_t count, const char *values, const char *name, char *room)
{
  const size_t most = PIECE_BYTES / p->from_bytes;
  for (size_t at = 0; at < count; at += most) {
    const size_t n = smaller(most, count - at);
    BRIM_TRY(pass(p, at, n, room));
    forget(p, at, n);
    if (memcmp(room, values + at * p->to_bytes, n * p->to_bytes) != 0)
      return brim_fail(BRIM_ELOAD,
                       "'%s': '%.200s' and '%s' have different values, but the model has one tensor for both",
                       p->weights->request.path, p->from->name, name);
  }
  return BRIM_OK;
}

static brim_status compare_twins(const brim_weights *w, size_t parameter, const char *values)
{
  const brim_tensor *t = w->parameter[parameter];
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < w->twin_count && status == BRIM_OK; i++) {
    const passage p = passage_of(w, w->twin[i].tensor, t);
    if (w->twin[i].parameter != parameter) continue;
    char *room = brim_try_malloc(PIECE_BYTES / p.from_bytes * p.to_bytes);
    if (!room) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a part of '%s'", p.from->name);
    status = compare_twin(&p, (size_t)brim_shape_count(&t->shape), values, w->match[parameter].tensor->name, room);
    free(room);
  }
  return status;
}

brim_status brim_weights_read(const brim_weights *w, size_t parameter, void *to)
{
  const brim_weights_match *m = &w->match[parameter];
  const brim_tensor *t = w->parameter[parameter];
  const passage p = passage_of(w, m->tensor, t);
  BRIM_TRY(m->transpose && t->shape.rank == 2 ? read_transposed(&p, to)
                                              : read_straight(&p, (size_t)brim_shape_count(&t->shape), to));
  return compare_twins(w, parameter, to);
}
