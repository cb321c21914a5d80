/* Reads an export again, and compares it. See base.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "export/base.h"
#include "store/weights.h"

typedef struct check {
  const brim_export_model *model;
  const char *path;
  brim_tensor *tensor; /* the tensors that the file must have */
  const brim_tensor **list;
  const brim_weights *weights;
} check;

/* Returns single precision for GGUF, because it can represent the values of all of GGUF's types. */
static uint32_t dtype_of(const brim_export_model *m, const brim_safetensor *t)
{
  if (m->type) return BRIM_DTYPE_F32;
  return m->dtype && brim_dtype_is_real(t->dtype) ? m->dtype : t->dtype;
}

/* Writes a parameter in the way in which the export converts it. */
static void make_expected(const brim_export_model *m, size_t i, size_t count, void *out)
{
  const brim_safetensor *t = &m->parameters->tensor[i];
  const float add = m->add ? (float)m->add[i] : 0;
  brim_convert(dtype_of(m, t), out, t->dtype, t->data, count);
  if (!m->type) return;
  unsigned char packed[BRIM_GGUF_BLOCK_MAX * sizeof(double)];
  const brim_gguf_type *type = brim_export_gguf_type(m->type, &t->shape);
  float *value = out;
  for (size_t k = 0; k < count && add != 0; k++) value[k] -= add;
  for (size_t at = 0; at < count; at += type->count) {
    type->pack(value + at, 1, packed);
    type->unpack(packed, 1, value + at);
  }
  for (size_t k = 0; k < count && add != 0; k++) value[k] += add;
}

static brim_status check_one(const check *c, size_t i, void *expected, void *found)
{
  const brim_safetensor *t = &c->model->parameters->tensor[i];
  const size_t count = (size_t)brim_shape_count(&t->shape), bytes = count * brim_dtype_bytes(c->tensor[i].dtype);
  if (!brim_weights_source(c->weights, i))
    return brim_fail(BRIM_EINTERNAL, "'%s', read again, lacks '%s'", c->path, t->name);
  BRIM_TRY(brim_weights_read(c->weights, i, found));
  make_expected(c->model, i, count, expected);
  if (c->model->parameters->files)
    brim_weights_files_forget(c->model->parameters->files, t->data, count * brim_dtype_bytes(t->dtype));
  if (memcmp(found, expected, bytes) == 0) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "'%s', read again, has other values in '%s'", c->path, t->name);
}

static brim_status check_all(check *c)
{
  const brim_parameters *p = c->model->parameters;
  size_t most = 1;
  for (size_t i = 0; i < p->count; i++) {
    const size_t bytes = (size_t)brim_shape_count(&p->tensor[i].shape) * brim_dtype_bytes(c->tensor[i].dtype);
    if (bytes > most) most = bytes;
  }
  void *expected = brim_try_malloc(most), *found = brim_try_malloc(most);
  brim_status status = expected && found ? BRIM_OK
                                         : brim_fail(BRIM_ENOMEM_HOST,
                                                     "cannot allocate %zu bytes of host memory to "
                                                     "read '%s' again",
                                                     most, c->path);
  for (size_t i = 0; i < p->count && status == BRIM_OK; i++) status = check_one(c, i, expected, found);
  free(expected);
  free(found);
  return status;
}

brim_status brim_export_check(const brim_export_model *m, const char *path)
{
  brim_arena arena = {0};
  const brim_parameters *p = m->parameters;
  check c = {m, path, BRIM_ARENA_NEW(&arena, brim_tensor, p->count + 1),
             BRIM_ARENA_NEW(&arena, const brim_tensor *, p->count + 1), NULL};
  for (size_t i = 0; i < p->count; i++) {
    c.tensor[i].name = p->tensor[i].name;
    c.tensor[i].shape = p->tensor[i].shape;
    c.tensor[i].dtype = dtype_of(m, &p->tensor[i]);
    c.list[i] = &c.tensor[i];
  }
  const brim_weights_request request = {.path = path, .map = "auto", .except = "", .search = m->search};
  brim_weights *weights = NULL;
  brim_status status = brim_weights_open(&request, c.list, p->count, &weights);
  c.weights = weights;
  if (status == BRIM_OK) status = check_all(&c);
  brim_weights_close(weights);
  brim_arena_release(&arena);
  return status;
}
