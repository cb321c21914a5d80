/* Reads GGUF files. The file is mapped; keys and names are copied, values are read in place. See gguf.h. */
#include "base/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/file.h"

#define KEY_BYTES_MAX 65535
#define NAME_BYTES_MAX 1000
#define HEAD_BYTES 24 /* magic, version, two counts */
#define DEFAULT_ALIGNMENT 32
#define ALIGNMENT_MAX (1u << 20)
#define VALUE_BYTES_MIN 13  /* fewest bytes of a key and its value: a length, a type, a value of one byte */
#define TENSOR_BYTES_MIN 24 /* fewest bytes of a tensor's entry in the table */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers have the same layout in memory and in a file");

struct brim_gguf {
  brim_file_map map; /* not mapped: the bytes belong to the caller */
  brim_arena arena;
  const char *path, *architecture;
  brim_gguf_value *value;
  const brim_gguf_value **by_key; /* sorted */
  size_t value_count;
  brim_gguf_tensor *tensor;
  const brim_gguf_tensor **by_name; /* sorted */
  size_t tensor_count;
};

typedef struct reading {
  brim_gguf *file;
  const unsigned char *bytes;
  uint64_t size, at;
} reading;

static brim_status bad(const reading *r, const char *format, ...) BRIM_PRINTF(2, 3);
static brim_status bad(const reading *r, const char *format, ...)
{
  char what[512];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(what, sizeof what, format, list);
  va_end(list);
  return brim_fail(BRIM_ELOAD, "'%s' is not a GGUF file that brim can read: %s", r->file->path, what);
}

/* ---- numbers and texts ---- */

static brim_status take(reading *r, const char *what, uint64_t bytes, const unsigned char **out)
{
  if (bytes > r->size - r->at)
    return bad(r, "%s at byte %llu needs %llu bytes, but the file ends after %llu", what, (unsigned long long)r->at,
               (unsigned long long)bytes, (unsigned long long)(r->size - r->at));
  *out = r->bytes + r->at;
  r->at += bytes;
  return BRIM_OK;
}

static brim_status take_u32(reading *r, const char *what, uint32_t *out)
{
  const unsigned char *from = NULL;
  BRIM_TRY(take(r, what, sizeof *out, &from));
  memcpy(out, from, sizeof *out);
  return BRIM_OK;
}

static brim_status take_u64(reading *r, const char *what, uint64_t *out)
{
  const unsigned char *from = NULL;
  BRIM_TRY(take(r, what, sizeof *out, &from));
  memcpy(out, from, sizeof *out);
  return BRIM_OK;
}

/* Reads a key or a name, and copies it. */
static brim_status take_name(reading *r, const char *what, uint64_t most, const char **out)
{
  const unsigned char *from = NULL;
  const uint64_t at = r->at;
  uint64_t bytes = 0;
  BRIM_TRY(take_u64(r, what, &bytes));
  if (bytes == 0 || bytes > most)
    return bad(r, "%s at byte %llu has %llu bytes; 1 to %llu are possible", what, (unsigned long long)at,
               (unsigned long long)bytes, (unsigned long long)most);
  BRIM_TRY(take(r, what, bytes, &from));
  if (memchr(from, 0, bytes)) return bad(r, "%s at byte %llu contains a NUL", what, (unsigned long long)at);
  *out = brim_arena_string_n(&r->file->arena, (const char *)from, bytes);
  return BRIM_OK;
}

/* ---- metadata ---- */

static const uint8_t kind_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 0: not fixed */
#define KINDS (sizeof kind_bytes / sizeof kind_bytes[0])

static brim_status skip_texts(reading *r, const char *key, uint64_t count)
{
  const unsigned char *from = NULL;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t bytes = 0;
    BRIM_TRY(take_u64(r, key, &bytes));
    BRIM_TRY(take(r, key, bytes, &from));
  }
  return BRIM_OK;
}

static brim_status read_value(reading *r, brim_gguf_value *v)
{
  BRIM_TRY(take_name(r, "a key", KEY_BYTES_MAX, &v->key));
  BRIM_TRY(take_u32(r, v->key, &v->kind));
  v->count = 1;
  if (v->kind == BRIM_GGUF_ARRAY) {
    BRIM_TRY(take_u32(r, v->key, &v->kind));
    BRIM_TRY(take_u64(r, v->key, &v->count));
    v->is_array = true;
    if (v->kind == BRIM_GGUF_ARRAY) return bad(r, "'%.200s' is an array of arrays, which brim does not read", v->key);
  }
  if (v->kind >= KINDS)
    return bad(r, "'%.200s' has a value of type %u, which the format does not define", v->key, v->kind);
  const uint64_t begin = r->at;
  v->data = r->bytes + begin;
  if (v->kind == BRIM_GGUF_TEXT) {
    BRIM_TRY(skip_texts(r, v->key, v->count));
  } else {
    const unsigned char *from = NULL;
    if (v->count > r->size)
      return bad(r, "'%.200s' claims %llu values, more than the file has bytes", v->key, (unsigned long long)v->count);
    BRIM_TRY(take(r, v->key, v->count * kind_bytes[v->kind], &from));
  }
  v->bytes = r->at - begin;
  return BRIM_OK;
}

static int compare_keys(const void *a, const void *b)
{
  return strcmp((*(const brim_gguf_value *const *)a)->key, (*(const brim_gguf_value *const *)b)->key);
}

static brim_status read_alignment(const reading *r, uint64_t *out)
{
  const brim_gguf_value *v = brim_gguf_find(r->file, "general.alignment");
  int64_t value = DEFAULT_ALIGNMENT;
  if (v && (v->is_array || !brim_gguf_integer(v, 0, &value) || value < 8 || value > ALIGNMENT_MAX || value % 8 != 0))
    return bad(r, "general.alignment must be a multiple of 8 up to %u", ALIGNMENT_MAX);
  *out = (uint64_t)value;
  return BRIM_OK;
}

/* ---- tensors ---- */

static brim_status read_dims(reading *r, brim_gguf_tensor *t)
{
  uint32_t rank = 0;
  uint64_t total = 1;
  BRIM_TRY(take_u32(r, t->name, &rank));
  if (rank > BRIM_DIMS_MAX)
    return bad(r, "tensor '%.200s' has %u dimensions; brim reads up to %d", t->name, rank, BRIM_DIMS_MAX);
  t->shape.rank = (int32_t)rank;
  for (uint32_t i = 0; i < rank; i++) {
    uint64_t dim = 0;
    BRIM_TRY(take_u64(r, t->name, &dim));
    if (dim > INT64_MAX || __builtin_mul_overflow(total, dim, &total) || total > INT64_MAX / 8)
      return bad(r, "the size of tensor '%.200s' overflows", t->name);
    t->shape.dim[rank - 1 - i] = (int64_t)dim;
  }
  return BRIM_OK;
}

static brim_status read_type(reading *r, brim_gguf_tensor *t)
{
  uint32_t id = 0;
  BRIM_TRY(take_u32(r, t->name, &id));
  const char *name = brim_gguf_type_name(id);
  t->type = brim_gguf_type_of(id);
  if (t->type) return BRIM_OK;
  if (!name) return bad(r, "tensor '%.200s' has type %u, which the format does not define", t->name, id);
  return bad(r,
             "tensor '%.200s' has type %s; brim reads F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K "
             "and Q6_K",
             t->name, name);
}

/* Reads an entry of the table, and stores the offset in *offset. */
static brim_status read_tensor(reading *r, brim_gguf_tensor *t, uint64_t *offset)
{
  BRIM_TRY(take_name(r, "the name of a tensor", NAME_BYTES_MAX, &t->name));
  BRIM_TRY(read_dims(r, t));
  BRIM_TRY(read_type(r, t));
  BRIM_TRY(take_u64(r, t->name, offset));
  const int64_t row = t->shape.rank > 0 ? t->shape.dim[t->shape.rank - 1] : 1;
  if (row % t->type->count != 0)
    return bad(r, "tensor '%.200s' has rows of %lld values, but blocks of %s have %u", t->name, (long long)row,
               t->type->name, t->type->count);
  t->bytes = (uint64_t)brim_shape_count(&t->shape) / t->type->count * t->type->bytes;
  return BRIM_OK;
}

static int compare_names(const void *a, const void *b)
{
  return strcmp((*(const brim_gguf_tensor *const *)a)->name, (*(const brim_gguf_tensor *const *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
  const brim_gguf_tensor *x = *(const brim_gguf_tensor *const *)a, *y = *(const brim_gguf_tensor *const *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Converts the offsets, which count from the end of the table. */
static brim_status place_tensors(reading *r, const uint64_t *offset, uint64_t alignment)
{
  brim_gguf *f = r->file;
  const uint64_t begin = (r->at + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < f->tensor_count; i++) {
    brim_gguf_tensor *t = &f->tensor[i];
    if (offset[i] % alignment != 0)
      return bad(r, "the values of tensor '%.200s' begin at %llu, which is not a multiple of %llu", t->name,
                 (unsigned long long)offset[i], (unsigned long long)alignment);
    if (begin > r->size || offset[i] > r->size - begin || t->bytes > r->size - begin - offset[i])
      return bad(r, "tensor '%.200s' needs %llu bytes at byte %llu, but the file has %llu bytes (it is cut short)",
                 t->name, (unsigned long long)t->bytes, (unsigned long long)(begin + offset[i]),
                 (unsigned long long)r->size);
    t->data = r->bytes + begin + offset[i];
    f->by_name[i] = t;
  }
  if (f->tensor_count > 1) qsort(f->by_name, f->tensor_count, sizeof *f->by_name, compare_places);
  for (size_t i = 1; i < f->tensor_count; i++)
    if (f->by_name[i - 1]->data + f->by_name[i - 1]->bytes > f->by_name[i]->data)
      return bad(r, "the values of tensors '%.200s' and '%.200s' overlap", f->by_name[i - 1]->name,
                 f->by_name[i]->name);
  return BRIM_OK;
}

static brim_status index_tensors(const reading *r)
{
  brim_gguf *f = r->file;
  if (f->tensor_count > 1) qsort(f->by_name, f->tensor_count, sizeof *f->by_name, compare_names);
  for (size_t i = 1; i < f->tensor_count; i++)
    if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
      return bad(r, "it has the tensor '%.200s' twice", f->by_name[i]->name);
  return BRIM_OK;
}

static brim_status read_tensors(reading *r, uint64_t count)
{
  brim_gguf *f = r->file;
  uint64_t alignment = DEFAULT_ALIGNMENT;
  if (count > r->size / TENSOR_BYTES_MIN)
    return bad(r, "it claims %llu tensors, more than fit into it", (unsigned long long)count);
  f->tensor = brim_arena_try(&f->arena, (count + 1) * sizeof *f->tensor);
  f->by_name = brim_arena_try(&f->arena, (count + 1) * sizeof *f->by_name);
  uint64_t *offset = brim_arena_try(&f->arena, (count + 1) * sizeof *offset);
  if (!f->tensor || !f->by_name || !offset)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tensors of '%s'", f->path);
  for (uint64_t i = 0; i < count; i++) BRIM_TRY(read_tensor(r, &f->tensor[i], &offset[i]));
  f->tensor_count = count;
  BRIM_TRY(read_alignment(r, &alignment));
  BRIM_TRY(place_tensors(r, offset, alignment));
  return index_tensors(r);
}

/* ---- files ---- */

static brim_status read_head(reading *r, uint64_t *tensors, uint64_t *values)
{
  uint32_t version = 0;
  if (r->size < HEAD_BYTES) return bad(r, "it has only %llu bytes", (unsigned long long)r->size);
  if (memcmp(r->bytes, "GGUF", 4) != 0) return bad(r, "it does not begin with GGUF");
  r->at = 4;
  BRIM_TRY(take_u32(r, "the version", &version));
  if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3)) return bad(r, "its numbers are big-endian");
  if (version != 2 && version != 3) return bad(r, "it has version %u; brim reads 2 and 3", version);
  BRIM_TRY(take_u64(r, "the number of tensors", tensors));
  return take_u64(r, "the number of keys", values);
}

/* If a model consists of several files, each has a part of the tensors, and only the first describes the network. */
static brim_status check_whole(const reading *r)
{
  int64_t files = 1;
  const brim_gguf_value *v = brim_gguf_find(r->file, "split.count");
  if (!v || v->is_array || !brim_gguf_integer(v, 0, &files) || files <= 1) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "'%s' is one of the %lld files of a model, and brim reads a model from one file\n"
                   "llama.cpp joins them: llama-gguf-split --merge FIRST.gguf WHOLE.gguf",
                   r->file->path, (long long)files);
}

static brim_status read_all(reading *r)
{
  uint64_t tensors = 0, values = 0;
  BRIM_TRY(read_head(r, &tensors, &values));
  brim_gguf *f = r->file;
  if (values > r->size / VALUE_BYTES_MIN)
    return bad(r, "it claims %llu keys, more than fit into it", (unsigned long long)values);
  f->value = brim_arena_try(&f->arena, (values + 1) * sizeof *f->value);
  f->by_key = brim_arena_try(&f->arena, (values + 1) * sizeof *f->by_key);
  if (!f->value || !f->by_key) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the keys of '%s'", f->path);
  for (uint64_t i = 0; i < values; i++) {
    BRIM_TRY(read_value(r, &f->value[i]));
    f->by_key[i] = &f->value[i];
    f->value_count++;
  }
  if (values > 1) qsort(f->by_key, values, sizeof *f->by_key, compare_keys);
  for (uint64_t i = 1; i < values; i++)
    if (strcmp(f->by_key[i - 1]->key, f->by_key[i]->key) == 0)
      return bad(r, "it has the key '%.200s' twice", f->by_key[i]->key);
  BRIM_TRY(check_whole(r));
  r->file->architecture = brim_gguf_text(r->file, "general.architecture");
  if (!r->file->architecture[0]) return bad(r, "it has no general.architecture");
  return read_tensors(r, tensors);
}

brim_status brim_gguf_parse(const void *bytes, size_t size, const char *path, brim_gguf **out)
{
  brim_gguf *file = brim_xcalloc(1, sizeof *file);
  reading r = {file, bytes, size, 0};
  file->path = brim_arena_string(&file->arena, path);
  const brim_status status = read_all(&r);
  if (status != BRIM_OK)
    brim_gguf_close(file);
  else
    *out = file;
  return status;
}

brim_status brim_gguf_open(const char *path, brim_gguf **out)
{
  brim_file_map map;
  BRIM_TRY(brim_file_map_open(path, &map));
  const brim_status status = brim_gguf_parse(map.data, map.bytes, path, out);
  if (status == BRIM_OK)
    (*out)->map = map;
  else
    brim_file_map_close(&map);
  return status;
}

void brim_gguf_close(brim_gguf *file)
{
  if (!file) return;
  brim_file_map_close(&file->map);
  brim_arena_release(&file->arena);
  free(file);
}

void brim_gguf_forget(const brim_gguf *file, const void *data, size_t bytes)
{
  brim_file_map_forget(&file->map, data, bytes);
}

bool brim_is_gguf(const char *path)
{
  const size_t length = strlen(path);
  return length > 5 && strcasecmp(path + length - 5, ".gguf") == 0;
}

/* ---- contents ---- */

const char *brim_gguf_path(const brim_gguf *file)
{
  return file->path;
}
const char *brim_gguf_architecture(const brim_gguf *file)
{
  return file->architecture;
}
size_t brim_gguf_value_count(const brim_gguf *file)
{
  return file->value_count;
}
const brim_gguf_value *brim_gguf_value_at(const brim_gguf *file, size_t i)
{
  return &file->value[i];
}
size_t brim_gguf_tensor_count(const brim_gguf *file)
{
  return file->tensor_count;
}
const brim_gguf_tensor *brim_gguf_tensor_at(const brim_gguf *file, size_t i)
{
  return &file->tensor[i];
}

const brim_gguf_value *brim_gguf_find(const brim_gguf *file, const char *key)
{
  const brim_gguf_value wanted = {.key = key}, *at = &wanted;
  const brim_gguf_value **found =
      file->value_count ? bsearch(&at, file->by_key, file->value_count, sizeof *found, compare_keys) : NULL;
  return found ? *found : NULL;
}

const brim_gguf_value *brim_gguf_find_own(const brim_gguf *file, const char *key)
{
  const size_t length = strlen(file->architecture);
  for (size_t i = 0; i < file->value_count; i++) {
    const char *s = file->value[i].key;
    if (strncmp(s, file->architecture, length) == 0 && s[length] == '.' && strcmp(s + length + 1, key) == 0)
      return &file->value[i];
  }
  return NULL;
}

const brim_gguf_tensor *brim_gguf_tensor_find(const brim_gguf *file, const char *name)
{
  const brim_gguf_tensor wanted = {.name = name}, *at = &wanted;
  const brim_gguf_tensor **found =
      file->tensor_count ? bsearch(&at, file->by_name, file->tensor_count, sizeof *found, compare_names) : NULL;
  return found ? *found : NULL;
}

bool brim_gguf_integer(const brim_gguf_value *v, uint64_t i, int64_t *out)
{
  const size_t bytes = v->kind < KINDS ? kind_bytes[v->kind] : 0;
  if (bytes == 0 || v->kind == BRIM_GGUF_F32 || v->kind == BRIM_GGUF_F64 || i >= v->count) return false;
  uint64_t raw = 0;
  memcpy(&raw, v->data + i * bytes, bytes);
  const bool is_signed = v->kind == BRIM_GGUF_I8 || v->kind == BRIM_GGUF_I16 || v->kind == BRIM_GGUF_I32;
  if (is_signed && raw >> (8 * bytes - 1)) raw |= ~(uint64_t)0 << 8 * bytes;
  if (v->kind == BRIM_GGUF_U64 && raw > INT64_MAX) return false;
  *out = (int64_t)raw;
  return true;
}

bool brim_gguf_number(const brim_gguf_value *v, uint64_t i, double *out)
{
  int64_t integer;
  float single;
  if (i >= v->count) return false;
  if (v->kind == BRIM_GGUF_F32) {
    memcpy(&single, v->data + i * sizeof single, sizeof single);
    *out = (double)single;
  } else if (v->kind == BRIM_GGUF_F64) {
    memcpy(out, v->data + i * sizeof *out, sizeof *out);
  } else {
    if (!brim_gguf_integer(v, i, &integer)) return false;
    *out = (double)integer;
  }
  return true;
}

bool brim_gguf_next_text(const brim_gguf_value *v, uint64_t *at, const char **text, uint64_t *bytes)
{
  if (v->kind != BRIM_GGUF_TEXT || *at >= v->bytes) return false;
  memcpy(bytes, v->data + *at, sizeof *bytes);
  *text = (const char *)v->data + *at + sizeof *bytes;
  *at += sizeof *bytes + *bytes;
  return true;
}

const char *brim_gguf_text(const brim_gguf *file, const char *key)
{
  const brim_gguf_value *v = brim_gguf_find(file, key);
  const char *text;
  uint64_t at = 0, bytes;
  if (!v || v->is_array || !brim_gguf_next_text(v, &at, &text, &bytes)) return "";
  return brim_arena_string_n((brim_arena *)(uintptr_t)&file->arena, text, bytes);
}
