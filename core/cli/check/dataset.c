/* Checks of datasets: opens, describes and reads them, with one thread and with several. See check.h. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "cli/check/check.h"
#include "data/answers.h"
#include "data/describe.h"
#include "graph/documents.h"

#define SAMPLES_MAX 64 /* samples of a split to check: the first, the last, and some in between */
#define THREADS 4
#define ROUNDS 8         /* repetitions per thread */
#define MARGIN_BYTES 256 /* guard bytes after a sample's memory */
#define MARGIN 0x5a
#define LEAK_BYTES 16 /* per sample */

static const char *const splits[] = {BRIM_SPLIT_TRAIN, BRIM_SPLIT_TEST, "validation"};

/* An open dataset. */
typedef struct opened {
  brim_config *config;
  const brim_config_choice *choice;
  void *self;
  brim_data data;
} opened;

static void close_data(opened *o)
{
  if (o->choice && o->choice->plugin->destroy) o->choice->plugin->destroy(o->self);
  brim_config_free(o->config);
  *o = (opened){0};
}

static brim_status open_data(brim_check *c, opened *o)
{
  static const char *const word[] = {"model=mlp", "backend=reference", "policy=[]", "augment.flip=false", NULL};
  BRIM_TRY(brim_check_config(c, word, NULL, &o->config));
  o->choice = brim_config_choice_of(o->config, "dataset");
  o->self = NULL;
  if (!o->choice->plugin->create)
    o->self = o->choice->params;
  else
    BRIM_TRY(o->choice->plugin->create(o->choice->params, &o->self));
  return brim_data_open(&o->data, o->choice->plugin, o->self, &o->config->settings);
}

/* Opens the dataset again; false if that fails, for a reason that the check "open" has reported. */
static bool reopen(brim_check *c, opened *o, enum brim_finding *finding)
{
  *o = (opened){0};
  if (open_data(c, o) == BRIM_OK) return true;
  close_data(o);
  *finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: the dataset cannot be opened");
  return false;
}

static const brim_dataset_info *info_of(const opened *o, size_t split)
{
  const brim_dataset_info *const info[] = {&o->data.train, &o->data.test, &o->data.validation};
  return info[split];
}

/* ---- opening ---- */

/* Decides whether the dataset lacks files or parameters, or is faulty itself. */
static enum brim_finding fail_open(brim_check *c, opened *o, brim_status status)
{
  const bool lacks = status == BRIM_ECONFIG || status == BRIM_ELOAD;
  brim_error error;
  brim_error_take(&error);
  const bool opens = o->data.ops && o->data.ops->open(o->self, BRIM_SPLIT_TRAIN) == BRIM_OK;
  const bool wrong = opens && brim_starts_with(error.text, "dataset '");
  close_data(o);
  if (!lacks || wrong) return brim_check_say(c, BRIM_FOUND_FAILED, "%s", error.text);
  brim_check_say(c, BRIM_FOUND_UNTRIED,
                 "cannot be opened with its defaults: %s\nset the path of its files and its other mandatory keys: "
                 "dataset.path=PATH",
                 error.text);
  return brim_check_words(c, error.text, BRIM_FOUND_UNTRIED);
}

static enum brim_finding check_open(brim_check *c)
{
  opened o = {0};
  brim_dataset_info info = {0};
  const brim_status status = open_data(c, &o);
  if (status != BRIM_OK) return fail_open(c, &o, status);
  enum brim_finding finding = BRIM_FOUND_OK;
  const brim_dataset_info *train = &o.data.train;
  brim_check_say(c, BRIM_FOUND_OK, "samples of [");
  for (int32_t i = 0; i < train->sample.rank; i++)
    brim_text_printf(&c->text, "%s%" PRId64, i ? "," : "", train->sample.dim[i]);
  brim_text_add(&c->text, "]");
  for (size_t i = 0; i < 3; i++)
    if (info_of(&o, i)->count > 0) brim_text_printf(&c->text, ", %" PRId64 " of %s", info_of(&o, i)->count, splits[i]);
  if (o.data.ops->open(o.self, "no_such_split") == BRIM_OK ||
      o.data.ops->describe(o.self, "no_such_split", &info) == BRIM_OK)
    finding =
        brim_check_say(c, BRIM_FOUND_FAILED,
                       "opens or describes a split 'no_such_split': for a missing split it must return BRIM_ENOTSUP");
  close_data(&o);
  return finding;
}

/* ---- reading ---- */

/* Memory for a sample and its label, each with a margin after it. */
typedef struct room {
  size_t values, label; /* bytes */
  uint8_t *bytes;
  brim_picture picture; /* for images of different sizes: passed instead of values */
} room;

static bool is_picture(const brim_dataset_info *info)
{
  return info->pixels_max > 0;
}

static brim_status make_room(const brim_dataset_info *info, room *r)
{
  int64_t elements = is_picture(info) ? info->pixels_max * info->sample.dim[0] : 1;
  for (int32_t i = 0; i < info->sample.rank && !is_picture(info); i++) elements *= info->sample.dim[i];
  const int64_t labels = info->task == BRIM_TASK_TOKENS ? elements : info->task == BRIM_TASK_VALUES ? info->targets : 1;
  r->values = (size_t)elements * brim_dtype_bytes(info->dtype) * (info->documents ? BRIM_DOCUMENT_ROWS : 1);
  r->label = (size_t)labels * sizeof(int32_t);
  r->bytes = brim_try_calloc(1, r->values + r->label + 2 * (size_t)MARGIN_BYTES);
  return r->bytes ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for a sample");
}

static uint8_t *label_of(const room *r)
{
  return r->bytes + r->values + MARGIN_BYTES;
}

/* Reads a sample into memory that is filled with `fill`. */
static brim_status read_into(const opened *o, size_t split, int64_t index, room *r, int fill)
{
  const brim_dataset_info *info = info_of(o, split);
  memset(r->bytes, fill, r->values);
  memset(r->bytes + r->values, MARGIN, MARGIN_BYTES);
  memset(label_of(r), fill, r->label);
  memset(label_of(r) + r->label, MARGIN, MARGIN_BYTES);
  r->picture = (brim_picture){.pixels = r->bytes, .room = r->values, .side_needed = info->side_max};
  return o->data.ops->read(o->self, splits[split], index, is_picture(info) ? (void *)&r->picture : r->bytes,
                           label_of(r));
}

static bool margin_is_whole(const uint8_t *margin)
{
  for (size_t i = 0; i < MARGIN_BYTES; i++)
    if (margin[i] != MARGIN) return false;
  return true;
}

/* Returns the bytes of the values to compare, because an image may fill only a part of its memory. */
static size_t written(const brim_dataset_info *info, const room *r)
{
  return is_picture(info) ? (size_t)(r->picture.rows * r->picture.columns * info->sample.dim[0]) : r->values;
}

static enum brim_finding fail_sample(brim_check *c, size_t split, int64_t index, const char *what)
{
  return brim_check_say(c, BRIM_FOUND_FAILED, "sample %" PRId64 " of %s %s", index, splits[split], what);
}

/* Reads twice, into memory with different fill bytes: bytes that keep the fill value were not written. */
static enum brim_finding read_sample(brim_check *c, const opened *o, size_t split, int64_t index, room *a, room *b)
{
  const brim_dataset_info *info = info_of(o, split);
  if (read_into(o, split, index, a, 0) != BRIM_OK || read_into(o, split, index, b, 0xff) != BRIM_OK)
    return brim_check_say(c, BRIM_FOUND_FAILED, "sample %" PRId64 " of %s cannot be read: %s", index, splits[split],
                          brim_error_text());
  if (!margin_is_whole(a->bytes + a->values)) return fail_sample(c, split, index, "writes past the end of its values");
  if (!margin_is_whole(label_of(a) + a->label)) return fail_sample(c, split, index, "writes past the end of its label");
  if (is_picture(info) && (a->picture.rows < 1 || a->picture.columns < 1 || written(info, a) > a->values))
    return fail_sample(c, split, index, "has a size that differs from the dataset's description");
  if (written(info, a) != written(info, b) || memcmp(a->bytes, b->bytes, written(info, a)) != 0)
    return fail_sample(c, split, index, "differs when it is read again, or is not fully written");
  if (memcmp(label_of(a), label_of(b), a->label) != 0)
    return fail_sample(c, split, index, "has a label that differs when it is read again, or is not fully written");
  if (brim_data_check_label(&o->data, splits[split], index, a->bytes, label_of(a)) != BRIM_OK)
    return brim_check_say(c, BRIM_FOUND_FAILED, "%s", brim_error_text());
  return BRIM_FOUND_OK;
}

/* Lists the first sample, the last, and some in between; returns their number. */
static int64_t list_samples(int64_t count, int64_t *out)
{
  const int64_t n = count < SAMPLES_MAX ? count : SAMPLES_MAX;
  for (int64_t i = 0; i < n; i++) {
    const uint64_t scattered = brim_hash(BRIM_HASH_START, &i, sizeof i) % (uint64_t)count;
    out[i] = n == count ? i : i == 0 ? 0 : i == 1 ? count - 1 : (int64_t)scattered;
  }
  return n;
}

static enum brim_finding read_split(brim_check *c, const opened *o, size_t split, int64_t *total)
{
  room a = {0}, b = {0};
  int64_t index[SAMPLES_MAX];
  const int64_t n = list_samples(info_of(o, split)->count, index);
  enum brim_finding finding = BRIM_FOUND_OK;
  if (make_room(info_of(o, split), &a) != BRIM_OK || make_room(info_of(o, split), &b) != BRIM_OK)
    finding = brim_check_error(c, "reading");
  for (int64_t i = 0; i < n && finding == BRIM_FOUND_OK; i++) finding = read_sample(c, o, split, index[i], &a, &b);
  *total += n;
  free(a.bytes);
  free(b.bytes);
  return finding;
}

/* Reads samples of all splits. Returns the bytes that stay allocated. */
static uint64_t read_all_splits(brim_check *c, const opened *o, int64_t *total, enum brim_finding *finding)
{
  const uint64_t before = mallinfo2().uordblks;
  *total = 0;
  for (size_t i = 0; i < 3 && *finding == BRIM_FOUND_OK; i++)
    if (info_of(o, i)->count > 0) *finding = read_split(c, o, i, total);
  const uint64_t after = mallinfo2().uordblks;
  return after > before ? after - before : 0;
}

/* Reads three times, and counts the lesser of the bytes that remain allocated after the second and the third time:
 * memory that is allocated once, including that of the C library for a thread, is not a leak. */
static enum brim_finding check_read(brim_check *c)
{
  opened o;
  int64_t total = 0;
  enum brim_finding finding = BRIM_FOUND_OK;
  if (!reopen(c, &o, &finding)) return finding;
  (void)read_all_splits(c, &o, &total, &finding);
  const uint64_t second = read_all_splits(c, &o, &total, &finding), third = read_all_splits(c, &o, &total, &finding),
                 kept = second < third ? second : third;
  if (finding == BRIM_FOUND_OK && kept > (uint64_t)total * LEAK_BYTES)
    finding = brim_check_say(c, BRIM_FOUND_WARNING,
                             "read() leaves %llu bytes allocated after %lld samples: it must not allocate",
                             (unsigned long long)kept, (long long)total);
  else if (finding == BRIM_FOUND_OK)
    brim_check_say(c, BRIM_FOUND_OK, "%lld samples, including the first and the last of each split", (long long)total);
  close_data(&o);
  return finding;
}

/* ---- by several threads ---- */

typedef struct reader {
  pthread_t thread;
  const opened *o;
  uint64_t hash; /* hash of all values that were read; 0: reading failed */
} reader;

static void *read_all(void *context)
{
  reader *r = context;
  room space = {0};
  int64_t index[SAMPLES_MAX];
  const brim_dataset_info *info = info_of(r->o, 0);
  const int64_t n = list_samples(info->count, index);
  if (make_room(info, &space) != BRIM_OK) return NULL;
  r->hash = BRIM_HASH_START;
  for (int64_t i = 0; i < n * ROUNDS && r->hash; i++) {
    const bool read = read_into(r->o, 0, index[i % n], &space, 0) == BRIM_OK;
    r->hash =
        read ? brim_hash(brim_hash(r->hash, space.bytes, written(info, &space)), label_of(&space), space.label) : 0;
  }
  free(space.bytes);
  return NULL;
}

static enum brim_finding check_threads(brim_check *c)
{
  opened o;
  reader all[THREADS + 1];
  int started = 0;
  enum brim_finding finding = BRIM_FOUND_OK;
  if (!reopen(c, &o, &finding)) return finding;
  for (int i = 0; i <= THREADS; i++) all[i] = (reader){.o = &o};
  while (started < THREADS && brim_thread_start(&all[started].thread, "brim-check", read_all, &all[started]) == 0)
    started++;
  for (int i = 0; i < started; i++) pthread_join(all[i].thread, NULL);
  read_all(&all[THREADS]); /* reads once more on one thread */
  brim_check_say(c, BRIM_FOUND_OK, "%d threads read the same as one", started);
  for (int i = 0; i < started && finding == BRIM_FOUND_OK; i++)
    if (all[i].hash != all[THREADS].hash)
      finding =
          brim_check_say(c, BRIM_FOUND_FAILED,
                         "samples that several threads read at a time differ from those that one thread reads: read() "
                         "must be thread-safe");
  close_data(&o);
  return finding;
}

/* ---- reported memory, and files of new samples ---- */

#define HOST_BYTES_MAX (UINT64_C(1) << 50)

static enum brim_finding check_host_bytes(brim_check *c)
{
  opened o;
  uint64_t all = 0;
  char text[32];
  enum brim_finding finding = BRIM_FOUND_OK;
  if (!reopen(c, &o, &finding)) return finding;
  const bool has = BRIM_HAS(brim_dataset_ops, o.data.ops, host_bytes);
  for (size_t i = 0; i < 3 && has && finding == BRIM_FOUND_OK; i++) {
    uint64_t bytes = 0, again = 0;
    if (info_of(&o, i)->count == 0) continue;
    if (o.data.ops->host_bytes(o.self, splits[i], &bytes) != BRIM_OK ||
        o.data.ops->host_bytes(o.self, splits[i], &again) != BRIM_OK)
      finding = brim_check_say(c, BRIM_FOUND_FAILED, "host_bytes fails although split %s is open: %s", splits[i],
                               brim_error_text());
    else if (bytes != again || bytes > HOST_BYTES_MAX)
      finding =
          brim_check_say(c, BRIM_FOUND_FAILED, "%" PRIu64 " bytes kept by split %s, and %" PRIu64 " when called again",
                         bytes, splits[i], again);
    all += bytes;
  }
  if (finding == BRIM_FOUND_OK && has)
    brim_check_say(c, BRIM_FOUND_OK, "keeps %s", brim_format_bytes(text, sizeof text, all));
  else if (finding == BRIM_FOUND_OK)
    brim_check_say(c, BRIM_FOUND_OK, "does not report memory");
  close_data(&o);
  return finding;
}

/* Tries a missing file and an empty one: if the dataset opens such a file, it must be able to describe it. */
static enum brim_finding try_file(brim_check *c, const opened *o, const char *path, bool exists)
{
  static const char split[] = "new";
  brim_dataset_info info = {0};
  if (o->data.ops->open_file(o->self, path, split) != BRIM_OK) return BRIM_FOUND_OK;
  if (!exists)
    return brim_check_say(c, BRIM_FOUND_FAILED, "opens the file '%s', which does not exist: it must return BRIM_ELOAD",
                          path);
  if (o->data.ops->describe(o->self, split, &info) == BRIM_OK && info.count >= 0) return BRIM_FOUND_OK;
  return brim_check_say(c, BRIM_FOUND_FAILED, "opens an empty file, but cannot describe it: %s", brim_error_text());
}

static enum brim_finding check_open_file(brim_check *c)
{
  opened o;
  char path[] = "/tmp/brim-check-XXXXXX", missing[sizeof path + 8];
  enum brim_finding finding = BRIM_FOUND_OK;
  if (!reopen(c, &o, &finding)) return finding;
  if (!BRIM_HAS(brim_dataset_ops, o.data.ops, open_file)) {
    close_data(&o);
    return brim_check_say(c, BRIM_FOUND_OK, "has no files of new samples");
  }
  const int fd = mkstemp(path);
  snprintf(missing, sizeof missing, "%s.missing", path);
  brim_check_say(c, BRIM_FOUND_OK, "rejects a missing file and describes each file that it opens");
  finding = try_file(c, &o, missing, false);
  if (finding == BRIM_FOUND_OK && fd >= 0) finding = try_file(c, &o, path, true);
  if (fd >= 0) {
    close(fd);
    unlink(path);
  }
  close_data(&o);
  return finding;
}

const brim_check_kind brim_dataset_checks[] = {{"open", check_open},           {"read", check_read},
                                               {"threads", check_threads},     {"host_bytes", check_host_bytes},
                                               {"open_file", check_open_file}, {NULL, NULL}};
