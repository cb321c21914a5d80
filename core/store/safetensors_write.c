/* Writes safetensors files: from one process, which hashes the bytes, or from the ranks of a job in parallel. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for states on the stack */
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "store/safetensors.h"
#include "store/safetensors_format.h"

#define PIECE_BYTES ((size_t)256 * 1024) /* hashed and written together, while they are in the cache */

typedef struct sink {
  int fd;
  const char *path;
  uint64_t bytes;
  XXH64_state_t hash;
} sink;

static brim_status sink_put(sink *to, const void *data, size_t bytes)
{
  const char *at = data;
  to->bytes += bytes;
  for (size_t n; bytes > 0; at += n, bytes -= n) {
    n = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    (void)XXH64_update(&to->hash, at, n);
    BRIM_TRY(brim_file_write_all(to->fd, to->path, at, n));
  }
  return BRIM_OK;
}

static uint64_t tensor_bytes(const brim_safetensor *tensor)
{
  return (uint64_t)brim_shape_count(&tensor->shape) * brim_dtype_bytes(tensor->dtype);
}

static json_t *describe(const brim_safetensor *tensor, uint64_t begin)
{
  json_t *shape = json_array();
  for (int32_t i = 0; i < tensor->shape.rank; i++) json_array_append_new(shape, json_integer(tensor->shape.dim[i]));
  return json_pack("{s:s, s:o, s:[I,I]}", "dtype", brim_dtype_name(tensor->dtype), "shape", shape, "data_offsets",
                   (json_int_t)begin, (json_int_t)(begin + tensor_bytes(tensor)));
}

/* Wider elements first, so every tensor is aligned to its elements without padding. */
static const uint32_t width_order[] = {8, 4, 2, 1};
#define WIDTHS (sizeof width_order / sizeof width_order[0])

static brim_status build_header(const char *path, const brim_safetensor *tensor, size_t count,
                                const char *const *metadata, json_t *header)
{
  if (metadata && metadata[0]) {
    json_t *map = json_object();
    for (size_t i = 0; metadata[i]; i += 2) json_object_set_new(map, metadata[i], json_string(metadata[i + 1]));
    json_object_set_new(header, BRIM_SAFETENSORS_METADATA, map);
  }
  for (size_t i = 0; i < count; i++)
    if (brim_dtype_bytes(tensor[i].dtype) == 0)
      return brim_fail(BRIM_EINVAL, "cannot write '%s': '%s' has no known dtype", path, tensor[i].name);
  uint64_t offset = 0;
  for (size_t w = 0; w < WIDTHS; w++) {
    for (size_t i = 0; i < count; i++) {
      if (brim_dtype_bytes(tensor[i].dtype) != width_order[w]) continue;
      if (json_object_get(header, tensor[i].name) || strcmp(tensor[i].name, BRIM_SAFETENSORS_METADATA) == 0)
        return brim_fail(BRIM_EINVAL, "cannot write '%s': two tensors have the name '%s'", path, tensor[i].name);
      if (json_object_set_new(header, tensor[i].name, describe(&tensor[i], offset)) != 0)
        return brim_fail(BRIM_EINVAL, "cannot write '%s': the name of tensor %zu is not valid UTF-8", path, i);
      offset += tensor_bytes(&tensor[i]);
    }
  }
  return BRIM_OK;
}

/* Makes the length and the JSON, padded with spaces so that the data starts at a multiple of 8. The caller frees the
 * result. */
static brim_status make_header(const char *path, const brim_safetensor *tensor, size_t count,
                               const char *const *metadata, char **out, size_t *bytes)
{
  json_t *header = json_object();
  char *json = NULL;
  brim_status status = header ? build_header(path, tensor, count, metadata, header) : BRIM_OK;
  if (header && status == BRIM_OK) json = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  BRIM_TRY(status);
  if (!json) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the header of '%s'", path);
  const uint64_t length = (strlen(json) + 7) / 8 * 8;
  *bytes = BRIM_SAFETENSORS_LENGTH_BYTES + length;
  *out = length > BRIM_SAFETENSORS_HEADER_MAX ? NULL : brim_try_malloc(*bytes);
  if (length > BRIM_SAFETENSORS_HEADER_MAX)
    status = brim_fail(BRIM_EINVAL, "cannot write '%s': its header would be longer than 100 MB", path);
  else if (!*out)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the header of '%s'", path);
  if (status == BRIM_OK) {
    memset(*out, ' ', *bytes);
    memcpy(*out, &length, sizeof length);
    memcpy(*out + sizeof length, json, strlen(json));
  }
  free(json);
  return status;
}

/* Gets the values of tensor `i` from byte `first` on, at most *bytes of them; *bytes becomes their number. */
static brim_status get_piece(const brim_safetensor *tensor, size_t i, const brim_safetensors_source *source,
                             uint64_t first, uint64_t *bytes, const void **out)
{
  *out = (const char *)tensor[i].data + first;
  if (tensor[i].data || !source) return BRIM_OK;
  if (source->most > 0 && *bytes > source->most) *bytes = source->most;
  return source->values(source->context, i, first, *bytes, out);
}

static brim_status put_tensor(sink *to, const brim_safetensor *tensor, size_t i, const brim_safetensors_source *source)
{
  const uint64_t end = tensor_bytes(&tensor[i]);
  for (uint64_t at = 0, bytes; at < end; at += bytes) {
    const void *values;
    bytes = end - at;
    BRIM_TRY(get_piece(tensor, i, source, at, &bytes, &values));
    BRIM_TRY(sink_put(to, values, bytes));
  }
  return BRIM_OK;
}

static brim_status put_data(sink *to, const brim_safetensor *tensor, size_t count,
                            const brim_safetensors_source *source)
{
  for (size_t w = 0; w < WIDTHS; w++)
    for (size_t i = 0; i < count; i++)
      if (brim_dtype_bytes(tensor[i].dtype) == width_order[w]) BRIM_TRY(put_tensor(to, tensor, i, source));
  return BRIM_OK;
}

brim_status brim_safetensors_write_from(const char *path, const brim_safetensor *tensor, size_t count,
                                        const char *const *metadata, const brim_safetensors_source *source,
                                        brim_file_digest *digest)
{
  sink to = {.fd = -1, .path = path};
  char *header = NULL;
  size_t bytes = 0;
  BRIM_TRY(make_header(path, tensor, count, metadata, &header, &bytes));
  (void)XXH64_reset(&to.hash, 0);
  brim_status status = brim_file_create(path, &to.fd);
  if (status == BRIM_OK) {
    status = sink_put(&to, header, bytes);
    if (status == BRIM_OK) status = put_data(&to, tensor, count, source);
    status = brim_file_end(to.fd, path, status);
  }
  free(header);
  if (status == BRIM_OK && digest) *digest = (brim_file_digest){.bytes = to.bytes, .hash = XXH64_digest(&to.hash)};
  return status;
}

brim_status brim_safetensors_write(const char *path, const brim_safetensor *tensor, size_t count,
                                   const char *const *metadata, brim_file_digest *digest)
{
  return brim_safetensors_write_from(path, tensor, count, metadata, NULL, digest);
}

/* ---- by several ranks ---- */

brim_status brim_safetensors_lay_out(const char *path, const brim_safetensor *tensor, size_t count,
                                     const char *const *metadata)
{
  char *header = NULL;
  size_t bytes = 0;
  uint64_t data = 0;
  int fd;
  BRIM_TRY(make_header(path, tensor, count, metadata, &header, &bytes));
  for (size_t i = 0; i < count; i++) data += tensor_bytes(&tensor[i]);
  brim_status status = brim_file_create(path, &fd);
  if (status == BRIM_OK) {
    status = brim_file_write_all(fd, path, header, bytes);
    if (status == BRIM_OK) status = brim_file_set_length(fd, path, bytes + data);
    status = brim_file_end(fd, path, status);
  }
  free(header);
  return status;
}

/* Writes this rank's part of a tensor: its slice, or an even part of a tensor that every rank has. */
static brim_status put_share(int fd, const char *path, const brim_safetensor *tensor, size_t i,
                             const brim_safetensors_source *source, int32_t rank, int32_t ranks, uint64_t begin)
{
  const brim_safetensor *t = &tensor[i];
  const uint64_t element = brim_dtype_bytes(t->dtype), all = (uint64_t)brim_shape_count(&t->shape);
  uint64_t first = t->first, end = t->first + t->count;
  if (!t->is_slice) {
    first = all * (uint64_t)rank / (uint64_t)ranks;
    end = all * (uint64_t)(rank + 1) / (uint64_t)ranks;
  }
  const uint64_t before = t->is_slice ? t->first * element : 0; /* bytes of the tensor before this rank's slice */
  for (uint64_t at = first * element, bytes; at < end * element; at += bytes) {
    const void *values;
    bytes = end * element - at;
    BRIM_TRY(get_piece(tensor, i, source, at - before, &bytes, &values));
    BRIM_TRY(brim_file_write_at(fd, path, values, bytes, begin + at));
  }
  return BRIM_OK;
}

brim_status brim_safetensors_write_share(const char *path, const brim_safetensor *tensor, size_t count,
                                         const char *const *metadata, const brim_safetensors_source *source,
                                         int32_t rank, int32_t ranks)
{
  char *header = NULL;
  size_t bytes = 0;
  int fd;
  BRIM_TRY(make_header(path, tensor, count, metadata, &header, &bytes));
  free(header);
  BRIM_TRY(brim_file_open_to_write(path, &fd));
  uint64_t at = bytes;
  brim_status status = BRIM_OK;
  for (size_t w = 0; w < WIDTHS; w++)
    for (size_t i = 0; status == BRIM_OK && i < count; i++) {
      if (brim_dtype_bytes(tensor[i].dtype) != width_order[w]) continue;
      status = put_share(fd, path, tensor, i, source, rank, ranks, at);
      at += tensor_bytes(&tensor[i]);
    }
  if (status == BRIM_OK) return brim_file_finish(fd, path);
  close(fd);
  return status;
}
