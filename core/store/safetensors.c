/* Reads safetensors files, and is as strict as the format's own library: the header is at most 100 MB of JSON without
 * duplicate keys, and the byte ranges of the tensors cover the data exactly once. brim maps the file, and the table of
 * tensors points into the mapping. */
#include "store/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "store/safetensors_format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors have the same layout in memory and in a file");

typedef struct entry {
  brim_safetensor tensor;
  uint64_t begin, end; /* bytes, from the start of the data */
  size_t order;        /* place in the header; empty tensors may share an offset */
} entry;

struct brim_safetensors {
  brim_file_map map; /* not mapped: the bytes belong to the caller */
  brim_arena arena;
  const char **metadata;           /* key, value, ..., NULL; may be NULL */
  brim_safetensor *tensor;         /* in the order of the data */
  const brim_safetensor **by_name; /* sorted */
  size_t count;
};

/* Error: BAD("format", path, arguments of the format...). */
#define BAD(...) brim_fail(BRIM_ELOAD, "'%s' is not a safetensors file that brim can read: " __VA_ARGS__)

/* A name in a message; only its beginning, because the file may be broken. */
#define NAME "tensor '%.200s'"

/* The format's types. */
static const struct {
  const char *name;
  uint32_t bytes, dtype; /* 0: brim has no such type */
} types[] = {
    {"F64", 8, BRIM_DTYPE_F64},
    {"F32", 4, BRIM_DTYPE_F32},
    {"BF16", 2, BRIM_DTYPE_BF16},
    {"F16", 2, BRIM_DTYPE_F16},
    {"I32", 4, BRIM_DTYPE_I32},
    {"U8", 1, BRIM_DTYPE_U8},
    {"I64", 8, 0},
    {"U64", 8, 0},
    {"U32", 4, 0},
    {"I16", 2, 0},
    {"U16", 2, 0},
    {"I8", 1, 0},
    {"BOOL", 1, 0},
    {"F8_E4M3", 1, 0},
    {"F8_E5M2", 1, 0},
};
#define TYPES (sizeof types / sizeof types[0])

/* Returns the bytes of an element, also of types that brim does not have. */
static uint32_t element_bytes(const brim_safetensor *tensor)
{
  for (size_t i = 0; i < TYPES && tensor->dtype == 0; i++)
    if (strcmp(tensor->type, types[i].name) == 0) return types[i].bytes;
  return brim_dtype_bytes(tensor->dtype);
}

uint64_t brim_safetensor_bytes(const brim_safetensor *tensor)
{
  const uint64_t count = (uint64_t)brim_shape_count(&tensor->shape);
  if (tensor->packed) return count / tensor->packed->count * tensor->packed->bytes;
  return count * element_bytes(tensor);
}

void brim_safetensor_format(const brim_safetensor *tensor, brim_text *out)
{
  brim_text_printf(out, "%s [", tensor->type ? tensor->type : brim_dtype_name(tensor->dtype));
  for (int32_t i = 0; i < tensor->shape.rank; i++)
    brim_text_printf(out, "%s%lld", i ? ", " : "", (long long)tensor->shape.dim[i]);
  brim_text_add(out, "]");
}

static brim_status parse_dtype(const char *path, const char *name, const json_t *value, brim_safetensor *tensor)
{
  const char *text = json_string_value(value);
  if (!text) return BAD(NAME " has no dtype", path, name);
  for (size_t i = 0; i < TYPES; i++) {
    if (strcmp(text, types[i].name) != 0) continue;
    tensor->dtype = types[i].dtype;
    tensor->type = types[i].name;
    return BRIM_OK;
  }
  return BAD(NAME " has dtype %.20s, which the format does not define", path, name, text);
}

/* Reads a shape, and computes the bytes that it needs, which could overflow in a malicious file. */
static brim_status parse_shape(const char *path, const char *name, const json_t *value, brim_safetensor *tensor,
                               uint64_t *bytes)
{
  if (!json_is_array(value)) return BAD(NAME " has no shape", path, name);
  const size_t rank = json_array_size(value);
  if (rank > BRIM_DIMS_MAX)
    return BAD(NAME " has %zu dimensions; brim reads up to %d", path, name, rank, BRIM_DIMS_MAX);
  tensor->shape.rank = (int32_t)rank;
  int64_t total = element_bytes(tensor);
  for (size_t i = 0; i < rank; i++) {
    const json_t *dim = json_array_get(value, i);
    tensor->shape.dim[i] = json_integer_value(dim);
    if (!json_is_integer(dim) || tensor->shape.dim[i] < 0)
      return BAD("dimension %zu of " NAME " is not a non-negative integer", path, i, name);
    if (__builtin_mul_overflow(total, tensor->shape.dim[i], &total))
      return BAD("the size of " NAME " overflows", path, name);
  }
  *bytes = (uint64_t)total;
  return BRIM_OK;
}

static brim_status parse_offsets(const char *path, const char *name, const json_t *value, entry *out)
{
  const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return BAD("data_offsets of " NAME " are not two ascending numbers", path, name);
  out->begin = (uint64_t)json_integer_value(begin);
  out->end = (uint64_t)json_integer_value(end);
  return BRIM_OK;
}

static brim_status parse_entry(const char *path, const char *name, const json_t *value, entry *out)
{
  uint64_t bytes = 0;
  if (!json_is_object(value)) return BAD(NAME " is not described by an object", path, name);
  BRIM_TRY(parse_dtype(path, name, json_object_get(value, "dtype"), &out->tensor));
  BRIM_TRY(parse_shape(path, name, json_object_get(value, "shape"), &out->tensor, &bytes));
  BRIM_TRY(parse_offsets(path, name, json_object_get(value, "data_offsets"), out));
  if (out->end - out->begin != bytes)
    return BAD(NAME " has %llu bytes, but its shape and dtype need %llu", path, name,
               (unsigned long long)(out->end - out->begin), (unsigned long long)bytes);
  return BRIM_OK;
}

static brim_status read_metadata(const char *path, json_t *map, brim_safetensors *file)
{
  size_t count = 0;
  const char *key;
  json_t *value;
  if (json_is_null(map)) return BRIM_OK; /* the format's library treats null as no metadata */
  if (!json_is_object(map)) return BAD(BRIM_SAFETENSORS_METADATA " is not an object", path);
  file->metadata = BRIM_ARENA_NEW(&file->arena, const char *, 2 * json_object_size(map) + 1);
  json_object_foreach(map, key, value)
  {
    if (!json_is_string(value)) return BAD(BRIM_SAFETENSORS_METADATA " '%.200s' is not a string", path, key);
    file->metadata[count++] = brim_arena_string(&file->arena, key);
    file->metadata[count++] = brim_arena_string(&file->arena, json_string_value(value));
  }
  return BRIM_OK;
}

static int compare_entries(const void *a, const void *b)
{
  const entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

/* Checks that the sorted `entries` lie back to back and end where the data ends. */
static brim_status check_cover(const char *path, const entry *entries, size_t count, uint64_t data_bytes)
{
  uint64_t expected = 0;
  for (size_t i = 0; i < count; i++) {
    if (entries[i].begin != expected)
      return BAD(NAME " starts at byte %llu of the data, but the tensors before it end at byte %llu (%s)", path,
                 entries[i].tensor.name, (unsigned long long)entries[i].begin, (unsigned long long)expected,
                 entries[i].begin < expected ? "they overlap" : "a gap");
    expected = entries[i].end;
  }
  if (expected == data_bytes) return BRIM_OK;
  return BAD("its tensors take %llu bytes, but %llu follow the header (%s)", path, (unsigned long long)expected,
             (unsigned long long)data_bytes,
             data_bytes < expected ? "the file is cut short" : "extra bytes at the end");
}

static brim_status read_entries(const char *path, json_t *header, brim_safetensors *file, entry *entries, size_t *count)
{
  const char *name;
  json_t *value;
  json_object_foreach(header, name, value)
  {
    if (strcmp(name, BRIM_SAFETENSORS_METADATA) == 0) {
      BRIM_TRY(read_metadata(path, value, file));
      continue;
    }
    entry *e = &entries[*count];
    BRIM_TRY(parse_entry(path, name, value, e));
    e->tensor.name = brim_arena_string(&file->arena, name);
    e->order = (*count)++;
  }
  return BRIM_OK;
}

static brim_status parse_json(const char *path, const char *text, size_t bytes, json_t **out)
{
  json_error_t problem;
  if (bytes == 0 || text[0] != '{') return BAD("its header does not start with '{'", path);
  *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  if (!*out) return BAD("byte %d of its header: %.200s", path, problem.position, problem.text);
  return BRIM_OK;
}

static brim_status header_extent(const char *path, const unsigned char *bytes, size_t size, uint64_t *length)
{
  if (brim_is_lfs_pointer(bytes, size)) return BAD(BRIM_LFS_HINT, path);
  if (size < BRIM_SAFETENSORS_LENGTH_BYTES) return BAD("it has only %zu bytes", path, size);
  memcpy(length, bytes, sizeof *length);
  if (*length > BRIM_SAFETENSORS_HEADER_MAX)
    return BAD("its header claims %llu bytes; the maximum is 100 MB", path, (unsigned long long)*length);
  if (*length > size - BRIM_SAFETENSORS_LENGTH_BYTES)
    return BAD("its header claims %llu bytes, but the file ends after %zu", path, (unsigned long long)*length, size);
  return BRIM_OK;
}

static int compare_names(const void *a, const void *b)
{
  return strcmp((*(const brim_safetensor *const *)a)->name, (*(const brim_safetensor *const *)b)->name);
}

static void index_tensors(brim_safetensors *file, const entry *entries, size_t count, const unsigned char *data)
{
  file->tensor = BRIM_ARENA_NEW(&file->arena, brim_safetensor, count + 1);
  file->by_name = BRIM_ARENA_NEW(&file->arena, const brim_safetensor *, count + 1);
  file->count = count;
  for (size_t i = 0; i < count; i++) {
    file->tensor[i] = entries[i].tensor;
    file->tensor[i].data = data + entries[i].begin;
    file->by_name[i] = &file->tensor[i];
  }
  if (count > 1) qsort(file->by_name, count, sizeof file->by_name[0], compare_names);
}

static brim_status load_header(const char *path, json_t *header, const unsigned char *data, uint64_t data_bytes,
                               brim_safetensors *file)
{
  entry *entries = brim_xcalloc(json_object_size(header) + 1, sizeof *entries);
  size_t count = 0;
  brim_status status = read_entries(path, header, file, entries, &count);
  if (status == BRIM_OK) {
    if (count > 1) qsort(entries, count, sizeof *entries, compare_entries);
    status = check_cover(path, entries, count, data_bytes);
  }
  if (status == BRIM_OK) index_tensors(file, entries, count, data);
  free(entries);
  return status;
}

brim_status brim_safetensors_parse(const void *bytes, size_t size, const char *path, brim_safetensors **out)
{
  uint64_t length = 0;
  json_t *header = NULL;
  BRIM_TRY(header_extent(path, bytes, size, &length));
  const unsigned char *start = (const unsigned char *)bytes + BRIM_SAFETENSORS_LENGTH_BYTES;
  BRIM_TRY(parse_json(path, (const char *)start, length, &header));
  brim_safetensors *file = brim_xcalloc(1, sizeof *file);
  const brim_status status =
      load_header(path, header, start + length, size - BRIM_SAFETENSORS_LENGTH_BYTES - length, file);
  json_decref(header);
  if (status != BRIM_OK)
    brim_safetensors_close(file);
  else
    *out = file;
  return status;
}

brim_status brim_safetensors_open(const char *path, brim_safetensors **out)
{
  brim_file_map map;
  BRIM_TRY(brim_file_map_open(path, &map));
  const brim_status status = brim_safetensors_parse(map.data, map.bytes, path, out);
  if (status == BRIM_OK)
    (*out)->map = map;
  else
    brim_file_map_close(&map);
  return status;
}

void brim_safetensors_close(brim_safetensors *file)
{
  if (!file) return;
  brim_file_map_close(&file->map);
  brim_arena_release(&file->arena);
  free(file);
}

size_t brim_safetensors_count(const brim_safetensors *file)
{
  return file->count;
}
const brim_safetensor *brim_safetensors_at(const brim_safetensors *file, size_t i)
{
  return &file->tensor[i];
}

const brim_safetensor *brim_safetensors_find(const brim_safetensors *file, const char *name)
{
  const brim_safetensor wanted = {.name = name}, *at = &wanted;
  const brim_safetensor **found =
      file->count ? bsearch(&at, file->by_name, file->count, sizeof *found, compare_names) : NULL;
  return found ? *found : NULL;
}

const char *brim_safetensors_metadata(const brim_safetensors *file, const char *key)
{
  for (const char **pair = file->metadata; pair && pair[0]; pair += 2)
    if (strcmp(pair[0], key) == 0) return pair[1];
  return NULL;
}

void brim_safetensors_forget(const brim_safetensors *file, const void *data, size_t bytes)
{
  brim_file_map_forget(&file->map, data, bytes);
}
