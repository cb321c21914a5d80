/* See set.h. */
#include "set.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_ROOM 4096
#define ESTIMATED 64 /* pictures from which the sizes of a split are estimated if it is not open */
#define NAMED_MAX 5  /* maximum damaged files that a message names */

typedef struct item {
  size_t name; /* offset of the name in the split's names */
  int32_t label;
  pixels_client client;
  pixels_box box;
} item;

typedef struct split {
  char *names;
  size_t names_bytes, names_room;
  item *item;
  int64_t count, room;
  bool opened;
  int32_t *client; /* [count]: the client of each picture, set when the split is opened; NULL without clients */
  int64_t pixels_max, side_max; /* maximum sizes of the opened pictures */
  uint64_t decoding_bytes;      /* the most memory that decoding one of them takes */
  char *title;                  /* name of a split of new samples; NULL for training and test */
  atomic_int reported;          /* number of replacements that were reported */
} split;

struct pixels_set {
  pixels_setup setup;
  bool listed;
  split *split;
  int splits;
  char **class_name;
  int64_t classes, class_room;
};

/* ---- Lists ---- */

/* Makes room for one more item in *at. *room is the present capacity. */
static brim_status grow(void **at, int64_t count, int64_t *room, size_t bytes)
{
  if (count < *room) return BRIM_OK;
  const int64_t wanted = *room > 0 ? 2 * *room : 64;
  void *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(*at, (size_t)wanted * bytes);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the list of pictures");
  *at = grown;
  *room = wanted;
  return BRIM_OK;
}

brim_status pixels_set_add_class(pixels_set *set, const char *name)
{
  void *names = set->class_name;
  BRIM_TRY(grow(&names, set->classes, &set->class_room, sizeof *set->class_name));
  set->class_name = names;
  char *copy = strdup(name);
  if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the names of the classes");
  set->class_name[set->classes++] = copy;
  return BRIM_OK;
}

static brim_status add_to(split *s, const char *name, int32_t label, const pixels_box *box, pixels_client client)
{
  const size_t bytes = strlen(name) + 1;
  void *items = s->item;
  BRIM_TRY(grow(&items, s->count, &s->room, sizeof *s->item));
  s->item = items;
  if (s->names_room - s->names_bytes < bytes) {
    const size_t wanted = 2 * s->names_room + bytes + NAME_ROOM;
    char *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(s->names, wanted);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the list of pictures");
    s->names = grown;
    s->names_room = wanted;
  }
  memcpy(s->names + s->names_bytes, name, bytes);
  s->item[s->count++] = (item){s->names_bytes, label, client, box ? *box : (pixels_box){0, 0, 0, 0}};
  s->names_bytes += bytes;
  return BRIM_OK;
}

brim_status pixels_set_add(pixels_set *set, enum pixels_split which, const char *name, int32_t label,
                           const pixels_box *box, pixels_client client)
{
  return add_to(&set->split[which], name, label, box, client);
}

int64_t pixels_set_classes(const pixels_set *set)
{
  return set->classes;
}

int64_t pixels_set_count(const pixels_set *set, enum pixels_split which)
{
  return set->split[which].count;
}

int64_t pixels_set_find_class(const pixels_set *set, const char *name, int64_t count)
{
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const int order = strcmp(set->class_name[middle], name);
    if (order == 0) return middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

static brim_status list_once(pixels_set *set)
{
  if (set->listed) return BRIM_OK;
  const brim_status status = set->setup.list(set->setup.params, set);
  set->listed = status == BRIM_OK;
  if (status != BRIM_OK) {
    for (int i = 0; i < PIXELS_FILES; i++) set->split[i].count = 0;
    for (int64_t i = 0; i < set->classes; i++) free(set->class_name[i]);
    set->classes = 0;
  }
  return status;
}

/* ---- Instances ---- */

brim_status pixels_set_create(const pixels_setup *setup, void **self)
{
  pixels_set *set = brim_try_calloc(1, sizeof *set);
  split *splits = brim_try_calloc(PIXELS_FILES, sizeof *splits);
  if (!set || !splits) {
    free(set);
    free(splits);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  }
  *set = (pixels_set){.setup = *setup, .split = splits, .splits = PIXELS_FILES};
  *self = set;
  return BRIM_OK;
}

static void split_free(split *s)
{
  free(s->names);
  free(s->item);
  free(s->client);
  free(s->title);
}

void pixels_set_destroy(void *self)
{
  pixels_set *set = self;
  if (!set) return;
  for (int i = 0; i < set->splits; i++) split_free(&set->split[i]);
  for (int64_t i = 0; i < set->classes; i++) free(set->class_name[i]);
  free(set->class_name);
  free(set->split);
  free(set);
}

/* ---- Files ---- */

/* Opens a picture for reading, and writes its full name to `name`. */
static brim_status file_open(const pixels_set *set, const split *s, int64_t i, char *name, int *fd)
{
  const char *file = s->names + s->item[i].name, *folder = s->title ? "" : set->setup.folder;
  snprintf(name, NAME_ROOM, "%.2000s%s%.2000s", folder, s->title ? "" : "/", file);
  *fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd >= 0) return BRIM_OK;
  return brim_fail(errno == ENOENT && !s->opened ? BRIM_ELOAD : BRIM_EIO, "cannot open '%s': %s", name,
                   strerror(errno));
}

static brim_status header_of(const pixels_set *set, const split *s, int64_t i, pixels_header *out)
{
  char name[NAME_ROOM];
  int fd = -1;
  BRIM_TRY(file_open(set, s, i, name, &fd));
  pixels_source source = pixels_source_file(fd);
  const brim_status status = pixels_header_read(&source, name, &set->setup.options, out);
  close(fd);
  return status;
}

static void widen(split *s, const pixels_header *h)
{
  if (h->rows * h->columns > s->pixels_max) s->pixels_max = h->rows * h->columns;
  if (h->rows > s->side_max) s->side_max = h->rows;
  if (h->columns > s->side_max) s->side_max = h->columns;
  if (h->decoding_bytes > s->decoding_bytes) s->decoding_bytes = h->decoding_bytes;
}

/* Adds a line to a message about damaged files. */
static void note(char *text, size_t room, int64_t number)
{
  const size_t used = strlen(text);
  if (number < NAMED_MAX) snprintf(text + used, room - used, "\n%s", brim_error_text());
  if (number == NAMED_MAX) snprintf(text + used, room - used, "\n...");
}

/* Reads all headers. Removes items with bad headers from the list. */
static brim_status check_headers(const pixels_set *set, split *s, int64_t *damaged, char *text, size_t room)
{
  int64_t kept = 0;
  *damaged = 0;
  text[0] = '\0';
  for (int64_t i = 0; i < s->count; i++) {
    pixels_header header;
    if (brim_stop_wanted()) return brim_fail(BRIM_EINTERRUPTED, "interrupted while checking pictures");
    const brim_status status = header_of(set, s, i, &header);
    if (status == BRIM_ELOAD) {
      note(text, room, (*damaged)++);
      continue;
    }
    BRIM_TRY(status);
    widen(s, &header);
    s->item[kept++] = s->item[i];
  }
  s->count = kept;
  return BRIM_OK;
}

/* Orders pictures by the names of their clients. */
static int by_client(const void *a, const void *b, void *context)
{
  const split *s = context;
  const item *x = &s->item[*(const int32_t *)a], *y = &s->item[*(const int32_t *)b];
  const uint16_t least = x->client.bytes < y->client.bytes ? x->client.bytes : y->client.bytes;
  const int order = memcmp(s->names + x->name + x->client.at, s->names + y->name + y->client.at, least);
  return order ? order : (x->client.bytes > y->client.bytes) - (x->client.bytes < y->client.bytes);
}

/* Numbers the clients. If the first picture has no client, no picture has one, and this does nothing. */
static brim_status number_clients(split *s)
{
  int32_t number = 0;
  if (s->count == 0 || s->item[0].client.bytes == 0) return BRIM_OK;
  int32_t *order = brim_try_calloc((size_t)s->count, sizeof *order);
  s->client = brim_try_calloc((size_t)s->count, sizeof *s->client);
  if (order && s->client) {
    for (int64_t i = 0; i < s->count; i++) order[i] = (int32_t)i;
    qsort_r(order, (size_t)s->count, sizeof *order, by_client, s);
    for (int64_t i = 0; i < s->count; i++) {
      number += i > 0 && by_client(&order[i - 1], &order[i], s) != 0;
      s->client[order[i]] = number;
    }
  }
  const bool has_room = order && s->client;
  free(order);
  return has_room ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for the clients of pictures");
}

static brim_status split_open(const pixels_set *set, split *s, const char *title)
{
  char text[2048];
  int64_t damaged;
  const int64_t count = s->count;
  BRIM_TRY(check_headers(set, s, &damaged, text, sizeof text));
  if (damaged > 0 && (set->setup.damaged == PIXELS_REFUSE || damaged == count))
    return brim_fail(BRIM_ELOAD, "%" PRId64 " of %" PRId64 " pictures of split '%s' cannot be used:%s%s", damaged,
                     count, title, text, damaged < count ? "\ndataset.damaged=skip leaves them out" : "");
  if (damaged > 0)
    brim_log(BRIM_LOG_WARN, "%" PRId64 " of %" PRId64 " pictures of split '%s' are left out:%s", damaged, count, title,
             text);
  BRIM_TRY(number_clients(s));
  s->opened = true;
  return BRIM_OK;
}

/* ---- Ops ---- */

static split *split_of(const pixels_set *set, const char *title)
{
  if (strcmp(title, "train") == 0) return &set->split[PIXELS_TRAIN];
  if (strcmp(title, "test") == 0) return &set->split[PIXELS_TEST];
  for (int i = PIXELS_FILES; i < set->splits; i++)
    if (strcmp(set->split[i].title, title) == 0) return &set->split[i];
  return NULL;
}

/* Lists the dataset's files only if one of its own splits is needed, because they may be missing if other files are
 * read. */
static brim_status split_find(pixels_set *set, const char *title, split **out)
{
  *out = split_of(set, title);
  if (*out && (*out)->title) return BRIM_OK;
  BRIM_TRY(list_once(set));
  if (!*out || (*out == &set->split[PIXELS_TEST] && (*out)->count == 0))
    return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", title);
  return BRIM_OK;
}

static brim_status set_open(void *self, const char *title)
{
  pixels_set *set = self;
  split *s;
  BRIM_TRY(split_find(set, title, &s));
  return s->opened || s->count == 0 ? BRIM_OK : split_open(set, s, title);
}

/* Estimates the sizes of a split that is not open from some of its pictures. */
static brim_status estimate(const pixels_set *set, const split *s, split *out)
{
  *out = (split){0};
  for (int64_t i = 0; i < ESTIMATED && i < s->count; i++) {
    pixels_header header;
    const brim_status status = header_of(set, s, s->count <= ESTIMATED ? i : i * s->count / ESTIMATED, &header);
    if (status == BRIM_OK) widen(out, &header);
    if (status != BRIM_OK && status != BRIM_ELOAD) return status;
  }
  return out->pixels_max > 0 ? BRIM_OK : brim_fail(BRIM_EINVAL, "none of the first pictures can be read");
}

static brim_status set_describe(const void *self, const char *title, brim_dataset_info *out)
{
  pixels_set *set = (pixels_set *)self;
  split *s, some = {0};
  const int64_t decoded = set->setup.gray ? PIXELS_CHANNELS : 1; /* gray pictures are made from decoded colours */
  BRIM_TRY(split_find(set, title, &s));
  if (!s->opened && s->count > 0) {
    if (set->setup.damaged == PIXELS_SKIP)
      return brim_fail(BRIM_EINVAL, "the number of undamaged pictures is not known yet");
    BRIM_TRY(estimate(set, s, &some));
  }
  const split *sizes = s->opened ? s : &some;
  *out = (brim_dataset_info){.count = s->count,
                             .dtype = BRIM_DTYPE_U8,
                             .classes = set->classes,
                             .class_names = (const char *const *)set->class_name,
                             .pixels_max = sizes->pixels_max * decoded,
                             .side_max = sizes->side_max,
                             .decoding_bytes = sizes->decoding_bytes};
  out->sample = (brim_shape){.rank = 3, .dim = {PIXELS_CHANNELS / decoded, 0, 0}};
  return BRIM_OK;
}

static brim_status set_host_bytes(const void *self, const char *title, uint64_t *out)
{
  pixels_set *set = (pixels_set *)self;
  split *s;
  BRIM_TRY(split_find(set, title, &s));
  *out = s->names_room + (uint64_t)s->room * sizeof *s->item;
  if (s->count > 0 && s->item[0].client.bytes > 0) *out += (uint64_t)s->count * sizeof *s->client;
  return BRIM_OK;
}

/* Clips the box to the picture, and moves the pixels of the box to the start. */
static void cut_box(const pixels_box *box, brim_picture *p)
{
  if (box->columns < 1 || box->rows < 1) return;
  const int64_t left = box->left < 0 ? 0 : box->left, top = box->top < 0 ? 0 : box->top;
  const int64_t right = (int64_t)box->left + box->columns < p->columns ? (int64_t)box->left + box->columns : p->columns;
  const int64_t bottom = (int64_t)box->top + box->rows < p->rows ? (int64_t)box->top + box->rows : p->rows;
  if (right <= left || bottom <= top) return;
  const size_t bytes = (size_t)(right - left) * PIXELS_CHANNELS;
  for (int64_t y = top; y < bottom; y++)
    memmove(p->pixels + (size_t)(y - top) * bytes, p->pixels + (y * p->columns + left) * PIXELS_CHANNELS, bytes);
  p->rows = bottom - top;
  p->columns = right - left;
}

/* Converts to gray in place by ITU-R BT.601 in 16 bits, as Pillow does. */
static void make_gray(brim_picture *p)
{
  const uint8_t *rgb = p->pixels;
  for (int64_t i = 0; i < p->rows * p->columns; i++, rgb += PIXELS_CHANNELS)
    p->pixels[i] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

static brim_status decode(const pixels_set *set, const split *s, int64_t i, brim_picture *picture)
{
  char name[NAME_ROOM];
  int fd = -1;
  pixels_options options = set->setup.options;
  const bool has_box = s->item[i].box.columns > 0; /* the box is in pixels of the whole picture */
  options.side_needed = options.side_needed > 0 && !has_box ? picture->side_needed : 0;
  BRIM_TRY(file_open(set, s, i, name, &fd));
  pixels_source source = pixels_source_file(fd);
  const brim_status status = pixels_decode(&source, name, &options, picture);
  close(fd);
  if (status == BRIM_OK) cut_box(&s->item[i].box, picture);
  if (status == BRIM_OK && set->setup.gray) make_gray(picture);
  return status;
}

/* Reads a picture. With dataset.damaged=skip, reads the first picture from `index` on that can be decoded. */
static brim_status set_read(const void *self, const char *title, int64_t index, void *values, void *label)
{
  const pixels_set *set = self;
  split *s = split_of(set, title);
  if (!s || !s->opened) return brim_fail(BRIM_EINVAL, "split '%s' is not open", title);
  if (index < 0 || index >= s->count)
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64 ": out of range", index, s->count);
  brim_status status = BRIM_OK;
  for (int64_t k = 0; k < s->count; k++) {
    const int64_t i = (index + k) % s->count;
    status = decode(set, s, i, values);
    *(int32_t *)label = s->item[i].label;
    if (status != BRIM_ELOAD) return status;
    if (set->setup.damaged == PIXELS_REFUSE)
      return s->title ? status : brim_fail_add(status, "dataset.damaged=skip leaves damaged pictures out");
    if (atomic_fetch_add(&s->reported, 1) < NAMED_MAX)
      brim_log(BRIM_LOG_WARN, "%s; the next undamaged picture replaces it", brim_error_text());
  }
  return status;
}

static brim_status file_add(pixels_set *set, split *s, const char *path, const char *title)
{
  s->title = strdup(title);
  if (!s->title) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  BRIM_TRY(add_to(s, path, -1, NULL, (pixels_client){0, 0}));
  pixels_header header;
  BRIM_TRY(header_of(set, s, 0, &header));
  widen(s, &header);
  s->opened = true;
  return BRIM_OK;
}

static brim_status set_open_file(void *self, const char *path, const char *title)
{
  pixels_set *set = self;
  split s = {0};
  if (split_of(set, title)) return brim_fail(BRIM_EINVAL, "split '%s' already exists", title);
  split *grown =
      brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(set->split, (size_t)(set->splits + 1) * sizeof *grown);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  set->split = grown;
  const brim_status status = file_add(set, &s, path, title);
  if (status == BRIM_OK)
    set->split[set->splits++] = s;
  else
    split_free(&s);
  return status == BRIM_EIO ? BRIM_ELOAD : status;
}

static brim_status set_client(const void *self, const char *title, int64_t index, int64_t *out)
{
  const pixels_set *set = self;
  const split *s = split_of(set, title);
  if (!s || !s->opened || index < 0 || index >= s->count)
    return brim_fail(BRIM_EINVAL, "split '%s' has no sample %" PRId64, title, index);
  if (!s->client)
    return brim_fail(BRIM_ECONFIG, "partition=natural needs the client of each picture, but dataset.client=none\n"
                                   "set dataset.client=folder if pictures are in <class>/<client>/");
  *out = s->client[index];
  return BRIM_OK;
}

const brim_dataset_ops pixels_set_ops = {.size = sizeof(brim_dataset_ops),
                                         .open = set_open,
                                         .describe = set_describe,
                                         .read = set_read,
                                         .open_file = set_open_file,
                                         .host_bytes = set_host_bytes};
const brim_dataset_ops pixels_set_client_ops = {.size = sizeof(brim_dataset_ops),
                                                .open = set_open,
                                                .describe = set_describe,
                                                .read = set_read,
                                                .open_file = set_open_file,
                                                .host_bytes = set_host_bytes,
                                                .client = set_client};
