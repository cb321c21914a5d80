/* Partition files: CSV with a header line "client,sample" or "client,sample,class", and then a row for each sample of a
 * client, in the client's order. Classes are for people, and brim does not read them back. Samples are numbers in the
 * dataset's training split, so that a file does not depend on which samples are used for validation. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "data/partition_parts.h"

#define HEADER "client,sample"

/* ---- writing ---- */

/* Writes a line for each sample of a client. `scratch`: for reading a class; NULL: the class is not written. */
static brim_status write_client(const brim_data *data, const brim_partition *p, int64_t client, void *scratch,
                                FILE *file)
{
  const int64_t count = brim_partition_count(p, client);
  for (int64_t i = 0; i < count; i++) {
    int32_t label;
    fprintf(file, "%" PRId64 ",%" PRId64, client, brim_partition_at(p, client, i));
    if (p->label || scratch) {
      BRIM_TRY(brim_partition_label(data, p, brim_partition_order(p, client, i), scratch, &label));
      fprintf(file, ",%" PRId32, label);
    }
    fputc('\n', file);
  }
  return BRIM_OK;
}

brim_status brim_partition_write(const brim_data *data, const brim_partition *p, const char *path)
{
  const bool reads = !p->label && data->train.task == BRIM_TASK_CLASS && data->train.pixels_max == 0;
  void *scratch = reads ? brim_try_malloc(data->scratch_bytes) : NULL;
  if (reads && !scratch) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a sample of '%s'", path);
  FILE *file = fopen(path, "w");
  if (!file) {
    free(scratch);
    return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  }
  brim_status status = BRIM_OK;
  fputs(p->label || reads ? HEADER ",class\n" : HEADER "\n", file);
  for (int64_t client = 0; client < p->clients && status == BRIM_OK; client++)
    status = write_client(data, p, client, scratch, file);
  free(scratch);
  const bool failed = ferror(file);
  if ((fclose(file) != 0 || failed) && status == BRIM_OK)
    return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  return status;
}

void brim_partition_number(const brim_partition *p, uint32_t *number)
{
  const int64_t count = (int64_t)p->shuffle.count;
  for (int64_t i = 0; i < count; i++) number[brim_permutation_at(&p->split, (uint64_t)i)] = (uint32_t)i + 1;
}

/* ---- hash ---- */

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
  const unsigned char byte[] = {(unsigned char)number,         (unsigned char)(number >> 8),
                                (unsigned char)(number >> 16), (unsigned char)(number >> 24),
                                (unsigned char)(number >> 32), (unsigned char)(number >> 40),
                                (unsigned char)(number >> 48), (unsigned char)(number >> 56)};
  return brim_hash(hash, byte, sizeof byte);
}

/* For drawn clients, of which there may be many, hashes the values that determine their samples. */
static uint64_t hash_drawn(const brim_partition *p)
{
  uint64_t hash = hash_number(BRIM_HASH_START, p->seed);
  hash = brim_hash(hash, &p->alpha, sizeof p->alpha);
  for (int64_t k = 0; k < p->clients; k++) hash = hash_number(hash, (uint64_t)brim_partition_count(p, k));
  for (int64_t k = 0; k < p->classes; k++) hash = hash_number(hash, (uint64_t)p->first[k + 1]);
  for (int64_t i = 0; i < p->first[p->classes]; i++)
    hash = hash_number(hash, brim_permutation_at(&p->split, p->index[i]));
  return hash;
}

uint64_t brim_partition_hash(const brim_partition *p)
{
  if (p->classes > 0) return hash_drawn(p);
  uint64_t hash = BRIM_HASH_START;
  for (int64_t client = 0; client < p->clients; client++) {
    const int64_t count = brim_partition_count(p, client);
    hash = hash_number(hash, (uint64_t)count);
    for (int64_t i = 0; i < count; i++) hash = hash_number(hash, (uint64_t)brim_partition_at(p, client, i));
  }
  return hash;
}

/* ---- reading ---- */

typedef struct reading {
  const brim_data *data;
  brim_partition *p;
  const char *path;
  int64_t line, rows;
  bool has_classes;   /* the file has a third column, which is ignored */
  uint32_t *training; /* for each sample of the split: its index among the training samples + 1; 0: validation */
  uint32_t *seen;     /* for each sample of the split: the line that contains it; 0: none yet */
  uint32_t *sample;   /* the training sample of each row */
  int64_t *owner;     /* the client of each row */
} reading;

#define fail_at(r, column, format, ...)                                                                                \
  brim_fail(BRIM_ECONFIG, "'%s', line %" PRId64 ", column %d: " format, (r)->path, (r)->line, column, __VA_ARGS__)

/* Reads a non-negative integer that is followed by `end` at *at, and advances *at past both. False: no such number, or
 * 10^18 or more. */
static bool take_number(const char **at, char end, int64_t *out)
{
  int64_t value = 0;
  int digits = 0;
  const char *s = *at;
  for (; *s >= '0' && *s <= '9' && digits < 18; s++, digits++) value = value * 10 + (*s - '0');
  if (digits == 0 || *s != end) return false;
  *at = s + (end != '\0');
  *out = value;
  return true;
}

static brim_status take_row(reading *r, const char *text)
{
  const int64_t split = r->data->train.count;
  int64_t client, sample;
  const char *at = text;
  if (!take_number(&at, ',', &client))
    return fail_at(r, 1, "'%.40s' does not begin with the number of a client and a comma", text);
  if (client >= r->p->clients)
    return fail_at(r, 1,
                   "there is no client %" PRId64 ": 'total_clients' is %" PRId64 ", and clients are numbered from 0",
                   client, r->p->clients);
  const int column = (int)(at - text) + 1;
  const bool has_class = r->has_classes && strchr(at, ',');
  if (!take_number(&at, has_class ? ',' : '\0', &sample))
    return fail_at(r, column, "'%.40s' is not the number of a sample", at);
  if (sample >= split)
    return fail_at(r, column, "there is no sample %" PRId64 ": the training split has %" PRId64 ", numbered from 0",
                   sample, split);
  if (r->seen[sample] > 0)
    return fail_at(r, column, "sample %" PRId64 " is also on line %" PRIu32 ": each sample belongs to one client",
                   sample, r->seen[sample]);
  if (r->training[sample] == 0)
    return fail_at(r, column,
                   "sample %" PRId64 " is not for training: it is kept for validation, or is beyond "
                   "training.num_train_samples",
                   sample);
  r->seen[sample] = (uint32_t)r->line;
  r->sample[r->rows] = r->training[sample] - 1;
  r->owner[r->rows++] = client;
  return BRIM_OK;
}

static void cut_end(char *line, ssize_t length)
{
  while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = '\0';
}

static brim_status find_empty(reading *r)
{
  int64_t first = -1, empty = 0;
  for (int64_t k = 0; k < r->p->clients; k++) {
    if (brim_partition_count(r->p, k) > 0) continue;
    if (empty++ == 0) first = k;
  }
  if (empty == 0) return BRIM_OK;
  return fail_at(r, 1,
                 "the file ends without a sample for client %" PRId64 "%s\nset total_clients=%" PRId64
                 ", or give each client at least one",
                 first, empty > 1 ? " and others" : "", r->p->clients - empty);
}

static brim_status read_open(reading *r, FILE *file)
{
  brim_partition *p = r->p;
  brim_partition_number(p, r->training);
  char *line = NULL;
  size_t room = 0;
  brim_status status = BRIM_OK;
  for (ssize_t length; status == BRIM_OK && (length = getline(&line, &room, file)) >= 0;) {
    cut_end(line, length);
    r->line++;
    if (r->line > 1)
      status = take_row(r, line);
    else if (strcmp(line, HEADER ",class") == 0)
      r->has_classes = true;
    else if (strcmp(line, HEADER) != 0)
      status = fail_at(r, 1, "'%.40s' is not the header line '" HEADER "'", line);
  }
  if (status == BRIM_OK && ferror(file))
    status = brim_fail(BRIM_ECONFIG, "cannot read '%s': %s", r->path, strerror(errno));
  free(line);
  if (status == BRIM_OK && r->rows == 0) {
    r->line++; /* the line that should contain it */
    status = fail_at(r, 1, "%s is missing", r->line == 1 ? "the header line '" HEADER "'" : "a first sample");
  }
  BRIM_TRY(status);
  p->samples = r->rows;
  brim_partition_fill(p, r->sample, r->owner);
  return find_empty(r);
}

brim_status brim_partition_read(const brim_data *data, brim_partition *p)
{
  const size_t count = (size_t)p->samples, split = (size_t)data->train.count;
  reading r = {.data = data, .p = p, .path = data->settings->partition.path};
  FILE *file = brim_fopen_to_read(r.path);
  if (!file) return brim_fail(BRIM_ECONFIG, "cannot read '%s': %s", r.path, brim_open_reason(errno));
  r.training = brim_try_calloc(split, sizeof *r.training);
  r.seen = brim_try_calloc(split, sizeof *r.seen);
  r.sample = brim_try_malloc(count * sizeof *r.sample);
  r.owner = brim_try_malloc(count * sizeof *r.owner);
  p->offset = brim_try_calloc((size_t)p->clients + 1, sizeof *p->offset);
  p->index = brim_try_malloc(count * sizeof *p->index);
  const bool has_room = r.training && r.seen && r.sample && r.owner && p->offset && p->index;
  const brim_status status =
      has_room ? read_open(&r, file) : brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", r.path);
  free(r.training);
  free(r.seen);
  free(r.sample);
  free(r.owner);
  fclose(file);
  return status;
}
