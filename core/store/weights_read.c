/* Reads the values of weights in the model's type and order. See weights.h. */
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/text.h"
#include "store/weights_parts.h"

#define PIECE_BYTES ((size_t)8 << 20) /* bytes of a file that are read before they are released */

/* A tensor being read. */
typedef struct passage {
  const brim_weights *weights;
  const brim_safetensor *from;
  uint32_t to_dtype;
  size_t from_bytes, to_bytes; /* bytes of an element; for packed values those of their type */
  double add;                  /* see brim_weights_rule */
} passage;

#define UNPACKED 2048 /* values that are unpacked at a time, a multiple of BRIM_GGUF_BLOCK_MAX */

static passage passage_of(const brim_weights *w, const brim_safetensor *from, const brim_tensor *to, double add)
{
  return (passage){w, from, to->dtype, brim_dtype_bytes(from->dtype), brim_dtype_bytes(to->dtype), add};
}

/* Returns the place of an element in the file; the element must be the first of a block. */
static const char *place_of(const passage *p, size_t first)
{
  const brim_gguf_type *packed = p->from->packed;
  const char *from = p->from->data;
  return packed ? from + first / packed->count * packed->bytes : from + first * p->from_bytes;
}

/* Converts through single precision: unpacks values, and adds the rule's number. */
static void pass_packed(const passage *p, size_t first, size_t count, char *to)
{
  float room[UNPACKED];
  const brim_gguf_type *packed = p->from->packed;
  for (size_t at = 0; at < count; at += UNPACKED) {
    const size_t n = count - at < UNPACKED ? count - at : UNPACKED;
    const char *from = place_of(p, first + at);
    if (packed)
      packed->unpack((const unsigned char *)from, n / packed->count, room);
    else
      brim_convert(BRIM_DTYPE_F32, room, p->from->dtype, from, n);
    for (size_t i = 0; i < n && p->add != 0; i++) room[i] += (float)p->add;
    brim_convert(p->to_dtype, to + at * p->to_bytes, BRIM_DTYPE_F32, room, n);
  }
}

/* Writes elements first..first+count-1 of the file's tensor, in whole blocks, to `to`. */
static brim_status pass(const passage *p, size_t first, size_t count, void *to)
{
  if (p->from->packed || p->add != 0)
    pass_packed(p, first, count, to);
  else
    brim_convert(p->to_dtype, to, p->from->dtype, place_of(p, first), count);
  if (brim_all_finite(p->to_dtype, to, count)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s': '%.200s' has a value that is not a finite number", p->weights->request.path,
                   p->from->name);
}

static void forget(const passage *p, size_t first, size_t count)
{
  const char *from = place_of(p, first);
  brim_weights_files_forget(p->weights->files, from, (size_t)(place_of(p, first + count) - from));
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

/* Restores the order of each head's rows, which are stored as 0, D/2, 1, D/2 + 1 .... Each row of the file consists of
 * whole blocks, except in a vector. */
static brim_status read_heads(const passage *p, size_t heads, size_t count, char *to)
{
  const size_t rows = (size_t)p->from->shape.dim[0], columns = rows ? count / rows : 0, half = rows / heads / 2;
  if (p->from->packed && columns % p->from->packed->count != 0)
    return brim_fail(BRIM_ELOAD, "'%s': '%.200s' is a vector of type %s, whose values brim cannot reorder",
                     p->weights->request.path, p->from->name, p->from->type);
  for (size_t r = 0; r < rows; r++) {
    const size_t head = r / (2 * half), in = r % (2 * half);
    const size_t row = head * 2 * half + in % 2 * half + in / 2;
    BRIM_TRY(pass(p, r * columns, columns, to + row * columns * p->to_bytes));
  }
  forget(p, 0, count);
  return BRIM_OK;
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
    const passage p = passage_of(w, w->twin[i].tensor, t, 0);
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
  const passage p = passage_of(w, m->tensor, t, m->add);
  const size_t count = (size_t)brim_shape_count(&t->shape);
  if (m->heads > 0)
    BRIM_TRY(read_heads(&p, (size_t)m->heads, count, to));
  else
    BRIM_TRY(m->transpose && t->shape.rank == 2 ? read_transposed(&p, to) : read_straight(&p, count, to));
  return compare_twins(w, parameter, to);
}
