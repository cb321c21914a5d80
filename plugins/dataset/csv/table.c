#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brim/host.h"

#define SHOWN_BYTES 60

typedef struct loading {
  const csv_reading *how;
  const csv_header *header;
  const csv_use *use;
  csv_names *classes;
  bool any_class; /* adds unknown class names */
  csv_names groups, clients;
  int32_t *group; /* [rows] */
  csv_table *table;
} loading;

void csv_table_free(csv_table *t)
{
  free(t->file);
  free(t->value);
  free(t->feature);
  free(t->target);
  free(t->label);
  free(t->client);
  free(t->order);
  free(t->begin);
  *t = (csv_table){0};
}

/* ---- room ---- */

static brim_status fail_memory(const csv_table *t)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the %" PRId64 " rows of '%s'", t->rows, t->file);
}

/* Allocates memory for rows x columns items. Sets *out to NULL if there are none. */
static brim_status reserve(csv_table *t, int64_t rows, int64_t columns, size_t bytes, void **out)
{
  *out = NULL;
  if (rows == 0 || columns == 0) return BRIM_OK;
  uint64_t count;
  if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)columns, &count) || count > SIZE_MAX / bytes)
    return fail_memory(t);
  *out = brim_try_calloc((size_t)count, bytes);
  if (!*out) return fail_memory(t);
  t->bytes += count * bytes;
  return BRIM_OK;
}

static brim_status reserve_all(loading *l, const csv_chosen *chosen)
{
  csv_table *t = l->table;
  void *value, *target, *label, *client, *group;
  t->rows = l->header->records;
  t->features = chosen->features;
  t->targets = l->how->answers ? chosen->targets : 0;
  BRIM_TRY(reserve(t, t->rows, t->features, sizeof *t->value, &value));
  t->value = value;
  t->bytes = t->bytes / sizeof *t->value * sizeof *t->feature;
  BRIM_TRY(reserve(t, t->rows, t->targets, sizeof *t->target, &target));
  t->target = target;
  BRIM_TRY(reserve(t, t->rows, l->how->answers && chosen->label[0], sizeof *t->label, &label));
  t->label = label;
  BRIM_TRY(reserve(t, t->rows, l->how->answers && chosen->client[0], sizeof *t->client, &client));
  t->client = client;
  const uint64_t bytes = t->bytes; /* the numbers of groups do not count, because they are temporary */
  BRIM_TRY(reserve(t, t->rows, chosen->group[0] != '\0', sizeof *l->group, &group));
  l->group = group;
  t->bytes = bytes;
  return BRIM_OK;
}

/* ---- values ---- */

/* Fails with a message that begins with the place: "'temperatures.csv', line 7, column 3 'outside': ..." */
#define fail_at(l, f, format, ...)                                                                                     \
  brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ", column %d '%.100s': " format, (l)->table->file, (f)->line,            \
            (f)->column + 1, (l)->header->name[(f)->column], __VA_ARGS__)

/* Returns how many bytes of a field a message shows, which is at most its first line. */
static int shown(const csv_field *f)
{
  const size_t n = strcspn(f->text, "\n");
  return n < SHOWN_BYTES ? (int)n : SHOWN_BYTES;
}

static brim_status take_number(const loading *l, const csv_field *f, enum csv_fill fill, double *out)
{
  if (csv_is_number(f, out)) return BRIM_OK;
  const bool missing = csv_is_missing(f);
  if (missing && fill != CSV_FILL_NO) {
    *out = fill == CSV_FILL_MEAN ? NAN : 0;
    return BRIM_OK;
  }
  if (missing)
    return fail_at(l, f, "a value is missing%s",
                   l->use[f->column].target >= 0 ? "" : "\ndataset.fill=mean or zero replaces it");
  return fail_at(l, f,
                 "'%.*s' is not a number within a float's range\n"
                 "features and targets must be numbers in every row; dataset.features selects columns",
                 shown(f), f->text);
}

static brim_status take_label(loading *l, const csv_field *f, int32_t *out)
{
  if (f->bytes == 0) return fail_at(l, f, "%s", "the class is missing");
  if (l->any_class) return csv_names_add(l->classes, f->text, out);
  *out = csv_names_find(l->classes, f->text);
  if (*out >= 0) return BRIM_OK;
  return fail_at(l, f, "class '%.*s' is not one of the training file's %d", shown(f), f->text, l->classes->count);
}

static brim_status take_field(loading *l, int64_t row, const csv_field *f)
{
  csv_table *t = l->table;
  const csv_use *use = &l->use[f->column];
  double target;
  if (use->feature >= 0) BRIM_TRY(take_number(l, f, l->how->fill, &t->value[row * t->features + use->feature]));
  if (use->target >= 0) {
    BRIM_TRY(take_number(l, f, CSV_FILL_NO, &target));
    t->target[row * t->targets + use->target] = (float)target;
  }
  if (use->label) BRIM_TRY(take_label(l, f, &t->label[row]));
  if (use->client) {
    if (f->bytes == 0) return fail_at(l, f, "%s", "the client is missing");
    BRIM_TRY(csv_names_add(&l->clients, f->text, &t->client[row]));
  }
  if (!use->group) return BRIM_OK;
  if (f->bytes == 0) return fail_at(l, f, "%s", "the group is missing");
  return csv_names_add(&l->groups, f->text, &l->group[row]);
}

/* Every record has all fields, because csv_header_read has checked the whole file. */
static brim_status load_rows(loading *l, csv_reader *r)
{
  csv_field f;
  bool more = true;
  for (int64_t row = 0; row < l->table->rows;) {
    BRIM_TRY(csv_reader_next(r, &f, &more));
    if (!more || f.column >= l->header->columns || f.last != (f.column == l->header->columns - 1))
      return brim_fail(BRIM_ELOAD, "'%s' changed while it was being read", l->table->file);
    BRIM_TRY(take_field(l, row, &f));
    row += f.last;
  }
  return BRIM_OK;
}

/* ---- classes and groups ---- */

/* Sorts the names and changes the numbers accordingly. */
static brim_status sort_names(const csv_table *t, csv_names *names, int32_t *number)
{
  int32_t *to = brim_try_calloc((size_t)names->count, sizeof *to);
  if (!to) return fail_memory(t);
  const brim_status status = csv_names_sort(names, to);
  for (int64_t i = 0; status == BRIM_OK && i < t->rows; i++) number[i] = to[number[i]];
  free(to);
  return status;
}

static brim_status sort_classes(loading *l)
{
  const csv_table *t = l->table;
  if (t->client && l->clients.count > 0) BRIM_TRY(sort_names(t, &l->clients, t->client));
  return t->label && l->any_class ? sort_names(t, l->classes, t->label) : BRIM_OK;
}

/* Sorts rows by group with a counting sort, which keeps the order within a group. */
static brim_status sort_groups(loading *l)
{
  csv_table *t = l->table;
  void *order, *begin;
  if (!l->group) return BRIM_OK;
  t->groups = l->groups.count;
  BRIM_TRY(reserve(t, t->rows, 1, sizeof *t->order, &order));
  t->order = order;
  BRIM_TRY(reserve(t, (int64_t)t->groups + 1, 1, sizeof *t->begin, &begin));
  t->begin = begin;
  for (int64_t i = 0; i < t->rows; i++) t->begin[l->group[i] + 1]++;
  for (int32_t g = 0; g < t->groups; g++) t->begin[g + 1] += t->begin[g];
  for (int64_t i = 0; i < t->rows; i++) t->order[t->begin[l->group[i]]++] = i;
  for (int32_t g = t->groups; g > 0; g--)
    t->begin[g] = t->begin[g - 1]; /* sorting has moved each entry to the start of the next group */
  t->begin[0] = 0;
  return BRIM_OK;
}

/* ---- a file ---- */

static brim_status load(loading *l, csv_reader *r, csv_chosen *chosen)
{
  csv_use *use = NULL;
  if (l->header->records == 0) return brim_fail(BRIM_ELOAD, "'%s' has no rows", l->table->file);
  if (chosen->features == 0) BRIM_TRY(csv_choose(l->header, l->table->file, l->how->wishes, chosen));
  BRIM_TRY(csv_use_of(l->header, l->table->file, chosen, l->how->answers, &use));
  l->use = use;
  l->any_class = l->classes->count == 0;
  brim_status status = reserve_all(l, chosen);
  if (status == BRIM_OK) status = load_rows(l, r);
  if (status == BRIM_OK) status = sort_classes(l);
  if (status == BRIM_OK) status = sort_groups(l);
  free(l->group);
  csv_names_free(&l->groups);
  csv_names_free(&l->clients);
  free(use);
  return status;
}

static brim_status read_open(int fd, const csv_reading *how, csv_chosen *chosen, csv_names *classes, csv_table *t)
{
  csv_reader *r = NULL;
  csv_header header = {0};
  loading l = {.how = how, .header = &header, .classes = classes, .table = t};
  brim_status status = csv_reader_open(fd, t->file, how->separator, &r);
  if (status == BRIM_OK) status = csv_header_read(r, how->wishes->has_header, &header);
  if (status == BRIM_OK) status = load(&l, r, chosen);
  csv_header_free(&header);
  csv_reader_close(r);
  return status;
}

brim_status csv_table_read(const char *file, const csv_reading *how, csv_chosen *chosen, csv_names *classes,
                           csv_table *out)
{
  *out = (csv_table){0};
  const size_t bytes = strlen(file) + 1;
  /* O_NONBLOCK: if the file is a pipe, open() does not wait for its other end. */
  const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", file, strerror(errno));
  out->file = brim_try_calloc(bytes, 1);
  if (out->file) memcpy(out->file, file, bytes);
  const brim_status status = out->file ? read_open(fd, how, chosen, classes, out)
                                       : brim_fail(BRIM_ENOMEM_HOST, "no memory to read '%s'", file);
  close(fd);
  if (status != BRIM_OK) csv_table_free(out);
  return status;
}

/* ---- means ---- */

/* Sums differences from the first value. They are exact if the values are close to each other. */
brim_status csv_table_measure(const csv_table *t, const csv_chosen *chosen, const int64_t *row, int64_t count,
                              double *mean, double *deviation)
{
  for (int32_t k = 0; k < t->features; k++) {
    double first = NAN, sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
      const double x = t->value[(row ? row[i] : i) * t->features + k];
      if (isnan(x)) continue;
      if (n == 0) first = x;
      sum += x - first;
      n++;
    }
    if (n == 0)
      return brim_fail(BRIM_ELOAD, "'%s': column '%.100s' has no value in the rows for training", t->file,
                       chosen->feature[k]);
    mean[k] = first + sum / (double)n;
    for (int64_t i = 0; i < count; i++) {
      const double x = t->value[(row ? row[i] : i) * t->features + k];
      if (!isnan(x)) squares += (x - mean[k]) * (x - mean[k]);
    }
    const double d = sqrt(squares / (double)n);
    deviation[k] = d > 0 ? d : 1;
  }
  return BRIM_OK;
}

/* Works in place. This is possible because a feature never lies after the value from which it is computed. */
void csv_table_fill(csv_table *t, const double *mean, const double *deviation, bool standardise)
{
  const int64_t count = t->rows * t->features;
  char *bytes = (char *)t->value;
  if (count == 0) return;
  for (int64_t i = 0; i < count; i++) {
    const int64_t k = i % t->features;
    double x;
    memcpy(&x, bytes + (size_t)i * sizeof x, sizeof x);
    if (isnan(x)) x = mean[k];
    const float feature = (float)(standardise ? (x - mean[k]) / deviation[k] : x);
    memcpy(bytes + (size_t)i * sizeof feature, &feature, sizeof feature);
  }
  t->value = NULL;
  float *less = realloc(bytes, (size_t)count * sizeof *less);
  t->feature = less ? less : (float *)(void *)bytes;
}
