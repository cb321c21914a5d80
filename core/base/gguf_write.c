/* Writes GGUF files of version 3. See gguf.h. */
#include <string.h>

#include "base/file.h"
#include "base/gguf.h"

#define ALIGNMENT 32

/* ---- metadata ---- */

static void add(brim_gguf_head *h, const void *data, size_t bytes)
{
  brim_text_add_n(&h->text, data, bytes);
}

static void add_u32(brim_gguf_head *h, uint32_t value)
{
  add(h, &value, sizeof value);
}

static void add_u64(brim_gguf_head *h, uint64_t value)
{
  add(h, &value, sizeof value);
}

void brim_gguf_add_text(brim_gguf_head *h, const char *text, size_t bytes)
{
  add_u64(h, bytes);
  add(h, text, bytes);
}

void brim_gguf_add_i32(brim_gguf_head *h, int32_t value)
{
  add(h, &value, sizeof value);
}

void brim_gguf_add_f32(brim_gguf_head *h, float value)
{
  add(h, &value, sizeof value);
}

static void begin(brim_gguf_head *h, const char *key, uint32_t kind)
{
  brim_gguf_add_text(h, key, strlen(key));
  add_u32(h, kind);
  h->count++;
}

void brim_gguf_put_text(brim_gguf_head *h, const char *key, const char *text, size_t bytes)
{
  begin(h, key, BRIM_GGUF_TEXT);
  brim_gguf_add_text(h, text, bytes);
}

void brim_gguf_put_u32(brim_gguf_head *h, const char *key, uint32_t value)
{
  begin(h, key, BRIM_GGUF_U32);
  add_u32(h, value);
}

void brim_gguf_put_f32(brim_gguf_head *h, const char *key, float value)
{
  begin(h, key, BRIM_GGUF_F32);
  brim_gguf_add_f32(h, value);
}

void brim_gguf_put_bool(brim_gguf_head *h, const char *key, bool value)
{
  const char byte = value;
  begin(h, key, BRIM_GGUF_BOOL);
  add(h, &byte, 1);
}

void brim_gguf_put_array(brim_gguf_head *h, const char *key, uint32_t kind, uint64_t count)
{
  begin(h, key, BRIM_GGUF_ARRAY);
  add_u32(h, kind);
  add_u64(h, count);
}

void brim_gguf_put_value(brim_gguf_head *h, const brim_gguf_value *v)
{
  if (v->is_array)
    brim_gguf_put_array(h, v->key, v->kind, v->count);
  else
    begin(h, v->key, v->kind);
  add(h, v->data, v->bytes);
}

void brim_gguf_head_release(brim_gguf_head *h)
{
  brim_text_release(&h->text);
  *h = (brim_gguf_head){0};
}

/* ---- the file ---- */

static uint64_t padded(uint64_t bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t tensor_bytes(const brim_gguf_tensor *t)
{
  return (uint64_t)brim_shape_count(&t->shape) / t->type->count * t->type->bytes;
}

/* Everything before the values. */
static void describe(const brim_gguf_head *head, const brim_gguf_tensor *tensor, size_t count, brim_gguf_head *out)
{
  uint64_t offset = 0;
  add(out, "GGUF", 4);
  add_u32(out, 3);
  add_u64(out, count);
  add_u64(out, head->count);
  add(out, brim_text_str(&head->text), head->text.length);
  for (size_t i = 0; i < count; i++) {
    const brim_gguf_tensor *t = &tensor[i];
    brim_gguf_add_text(out, t->name, strlen(t->name));
    add_u32(out, (uint32_t)t->shape.rank);
    for (int32_t d = t->shape.rank; d-- > 0;) add_u64(out, (uint64_t)t->shape.dim[d]);
    add_u32(out, t->type->id);
    add_u64(out, offset);
    offset += padded(tensor_bytes(t));
  }
}

static brim_status write_padding(int fd, const char *path, uint64_t written)
{
  static const char zero[ALIGNMENT];
  return brim_file_write_all(fd, path, zero, padded(written) - written);
}

static brim_status write_all(int fd, const char *path, const brim_gguf_head *before, const brim_gguf_tensor *tensor,
                             size_t count, const brim_gguf_source *source)
{
  BRIM_TRY(brim_file_write_all(fd, path, brim_text_str(&before->text), before->text.length));
  BRIM_TRY(write_padding(fd, path, before->text.length));
  for (size_t i = 0; i < count; i++) {
    const void *values;
    const uint64_t bytes = tensor_bytes(&tensor[i]);
    BRIM_TRY(source->values(source->context, i, &values));
    BRIM_TRY(brim_file_write_all(fd, path, values, bytes));
    BRIM_TRY(write_padding(fd, path, bytes));
  }
  return BRIM_OK;
}

brim_status brim_gguf_write(const char *path, const brim_gguf_head *head, const brim_gguf_tensor *tensor, size_t count,
                            const brim_gguf_source *source)
{
  int fd;
  brim_gguf_head before = {0};
  BRIM_TRY(brim_file_create(path, &fd));
  describe(head, tensor, count, &before);
  const brim_status status = write_all(fd, path, &before, tensor, count, source);
  brim_gguf_head_release(&before);
  return brim_file_end(fd, path, status);
}
