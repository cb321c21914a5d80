/* NumPy arrays in a folder: x_train.npy, y_train.npy, x_test.npy and y_test.npy.
 *
 *     x  uint8 or float32, [n,F], [n,T,F] (sequences) or [n,C,H,W]; uint8 [n,H,W] are gray images
 *     y  int64, int32 or uint8, [n]: classes from 0
 *
 * Files are mapped, so they may be larger than memory. Format: numpy.org/neps/nep-0001-npy-format.html. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <brim/dataset.h>
#include <brim/host.h>
#include <brim/plugin.h>

typedef struct npy {
  const char *path;
  int64_t classes;
} npy;

static const brim_param table[] = {
    BRIM_PARAM(PATH, npy, path, NULL, NULL, "folder of x_train.npy, y_train.npy, x_test.npy, y_test.npy"),
    BRIM_PARAM(I64, npy, classes, "10", "[2,1000000]", "labels are 0 to classes-1"),
    BRIM_PARAMS_END,
};

typedef struct array {
  char *map; /* the file, or NULL */
  size_t map_bytes;
  const char *data;
  char type[4]; /* NumPy's, without the byte order: "f4" */
  int32_t rank;
  int64_t dim[BRIM_DIMS_MAX + 1];
  size_t row_bytes; /* of one sample */
} array;

typedef struct split {
  struct split *next;
  char name[64];
  array x, y;
} split;

typedef struct set {
  const npy *p;
  split *first;
} set;

/* ---- a file ---- */

static brim_status map_file(const char *path, array *a)
{
  struct stat s = {0};
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  const int is_good = fstat(fd, &s) == 0 && s.st_size >= 12;
  void *map = is_good ? mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (map == MAP_FAILED) return brim_fail(BRIM_ELOAD, "'%s' is not a NumPy array, or cannot be mapped", path);
  a->map = map;
  a->map_bytes = (size_t)s.st_size;
  return BRIM_OK;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (150, 4), } */
static brim_status parse_header(const char *path, const char *header, array *a)
{
  const char *type = strstr(header, "'descr': '"), *at = strstr(header, "'shape': (");
  if (!type || !at || !strstr(header, "'fortran_order': False") || type[10] == '>' ||
      sscanf(type + 10, "%*1[<|=]%3[a-z0-9]", a->type) != 1 || strlen(a->type) != 2)
    return brim_fail(BRIM_ELOAD, "'%s': numbers must be little-endian and in C order: %s", path, header);
  at += strlen("'shape': (");
  for (int length; sscanf(at, "%lld%n", (long long *)&a->dim[a->rank], &length) == 1; at += strspn(at, ", ")) {
    at += length;
    if (a->dim[a->rank] < 0 || a->rank++ == BRIM_DIMS_MAX)
      return brim_fail(BRIM_ELOAD, "'%s': at most %d dimensions are supported: %s", path, BRIM_DIMS_MAX, header);
  }
  return BRIM_OK;
}

/* Maps an array whose type is one of `types`, and checks that the file contains all of it. */
static brim_status open_array(const char *path, const char *types, array *a)
{
  char header[512] = {0};
  BRIM_TRY(map_file(path, a));
  const unsigned char *m = (const unsigned char *)a->map;
  const size_t start = m[6] == 1 ? 10 : 12, length = m[8] | (size_t)m[9] << 8;
  if (memcmp(m, "\x93NUMPY", 6) != 0 || length >= sizeof header || start + length > a->map_bytes)
    return brim_fail(BRIM_ELOAD, "'%s' is not a NumPy array", path);
  memcpy(header, a->map + start, length);
  header[strcspn(header, "}\n")] = '\0';                                /* padded with spaces */
  for (char *c = header; *c; c++) *c = *c < ' ' || *c > '~' ? '?' : *c; /* for messages */
  BRIM_TRY(parse_header(path, header, a));
  if (a->rank == 0 || !strstr(types, a->type))
    return brim_fail(BRIM_ELOAD, "'%s': the type must be one of %s, with at least one dimension: %s", path, types,
                     header);
  a->data = a->map + start + length;
  a->row_bytes = (size_t)(a->type[1] - '0');
  size_t bytes = 0;
  int is_large = 0;
  for (int32_t i = 1; i < a->rank; i++)
    is_large |= __builtin_mul_overflow(a->row_bytes, (size_t)a->dim[i], &a->row_bytes);
  is_large |= __builtin_mul_overflow(a->row_bytes, (size_t)a->dim[0], &bytes);
  if (is_large || bytes != a->map_bytes - start - length)
    return brim_fail(BRIM_ELOAD, "'%s': the size of the file, %zu bytes, does not match its header: %s", path,
                     a->map_bytes, header);
  return BRIM_OK;
}

static int64_t label_at(const array *y, int64_t i)
{
  int32_t narrow;
  int64_t wide;
  const char *at = y->data + y->row_bytes * (size_t)i;
  if (y->row_bytes == 1) return *(const unsigned char *)at;
  if (y->row_bytes == 8) return memcpy(&wide, at, 8), wide; /* data may be unaligned */
  return memcpy(&narrow, at, 4), narrow;
}

/* ---- splits ---- */

static split *find(const set *d, const char *name)
{
  split *s = d->first;
  while (s && strcmp(s->name, name) != 0) s = s->next;
  return s;
}

static brim_status add_split(set *d, const char *name, split **out)
{
  *out = brim_try_calloc(1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a split");
  snprintf((*out)->name, sizeof(*out)->name, "%s", name);
  (*out)->next = d->first;
  d->first = *out;
  return BRIM_OK;
}

/* Checks every label, because read_sample() must be able to serve every sample. */
static brim_status open_split(void *self, const char *name)
{
  set *d = self;
  split *s;
  char path[4096];
  if (find(d, name)) return BRIM_OK;
  if (strcmp(name, "train") != 0 && strcmp(name, "test") != 0)
    return brim_fail(BRIM_ENOTSUP, "no split '%s': the splits are 'train' and 'test'", name);
  BRIM_TRY(add_split(d, name, &s));
  snprintf(path, sizeof path, "%s/x_%s.npy", d->p->path, name);
  BRIM_TRY(open_array(path, "u1 f4", &s->x));
  snprintf(path, sizeof path, "%s/y_%s.npy", d->p->path, name);
  BRIM_TRY(open_array(path, "i8 i4 u1", &s->y));
  if (s->y.rank != 1 || s->y.dim[0] != s->x.dim[0])
    return brim_fail(BRIM_ELOAD, "'%s': there must be a label for each of the %lld samples", path,
                     (long long)s->x.dim[0]);
  for (int64_t i = 0; i < s->y.dim[0]; i++)
    if (label_at(&s->y, i) < 0 || label_at(&s->y, i) >= d->p->classes)
      return brim_fail(BRIM_ELOAD, "'%s': label %lld is %lld, but dataset.classes is %lld", path, (long long)i,
                       (long long)label_at(&s->y, i), (long long)d->p->classes);
  return BRIM_OK;
}

/* Opens new samples for `brim predict`: an x without its y. */
static brim_status open_file(void *self, const char *path, const char *name)
{
  split *s;
  BRIM_TRY(add_split(self, name, &s));
  return open_array(path, "u1 f4", &s->x);
}

static brim_status describe(const void *self, const char *name, brim_dataset_info *out)
{
  const set *d = self;
  const split *s = find(d, name);
  if (!s) return BRIM_EINVAL; /* not open yet: the core opens the split, which is cheap, and asks again */
  const int is_gray = s->x.rank == 3 && s->x.row_bytes == (size_t)(s->x.dim[1] * s->x.dim[2]);
  *out = (brim_dataset_info){.count = s->x.dim[0],
                             .dtype = s->x.type[0] == 'u' ? BRIM_DTYPE_U8 : BRIM_DTYPE_F32,
                             .classes = d->p->classes,
                             .task = BRIM_TASK_CLASS};
  out->sample.rank = s->x.rank - 1 + is_gray;
  out->sample.dim[0] = 1;
  for (int32_t i = 1; i < s->x.rank; i++) out->sample.dim[i - 1 + is_gray] = s->x.dim[i];
  return BRIM_OK;
}

static brim_status host_bytes(const void *self, const char *name, uint64_t *out)
{
  const split *s = find(self, name);
  *out = s ? s->x.map_bytes + s->y.map_bytes : 0;
  return BRIM_OK;
}

static brim_status read_sample(const void *self, const char *name, int64_t index, void *values, void *label)
{
  const split *s = find(self, name);
  memcpy(values, s->x.data + s->x.row_bytes * (size_t)index, s->x.row_bytes);
  *(int32_t *)label = s->y.map ? (int32_t)label_at(&s->y, index) : -1;
  return BRIM_OK;
}

static brim_status create(const void *params, void **self)
{
  set *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for dataset 'npy'");
  d->p = params;
  *self = d;
  return BRIM_OK;
}

static void destroy(void *self)
{
  set *d = self;
  while (d && d->first) {
    split *s = d->first;
    d->first = s->next;
    if (s->x.map) munmap(s->x.map, s->x.map_bytes);
    if (s->y.map) munmap(s->y.map, s->y.map_bytes);
    free(s);
  }
  free(d);
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = open_split,
                                     .describe = describe,
                                     .read = read_sample,
                                     .open_file = open_file,
                                     .host_bytes = host_bytes};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_DATASET,
                                   .id = "npy",
                                   .help = "memory-mapped NumPy arrays: x_train.npy, y_train.npy and so on",
                                   .params_size = sizeof(npy),
                                   .params = table,
                                   .create = create,
                                   .destroy = destroy,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("npy", "1.0", plugins)
