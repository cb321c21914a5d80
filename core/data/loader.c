/* Threads decode micro-batches ahead; the consumer takes them in order.
 *
 * Micro-batch number s is stored in slot s mod slots. Under the lock, a thread takes the next number as soon as its
 * slot is free, and gets its span. It decodes without the lock. The consumer waits for the slot of its next number. A
 * slot becomes free when the consumer asks for the next micro-batch. So the order does not depend on which thread
 * decodes, and the slots limit the memory. Everything except the threads' stacks lies in one allocation made at
 * open. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/long_call.h"
#include "base/thread.h"
#include "base/tracing.h"
#include "data/data.h"

#define LINE_BYTES 64u /* memory that threads write starts at a cache line */

typedef struct slot {
  brim_batch batch;
  bool ready; /* protected by the lock; the other fields belong to the decoding thread until `ready`, then to the
                 consumer */
  brim_status status;
  brim_error error;
} slot;

typedef struct worker {
  pthread_t thread;
  brim_loader *loader;
  void *scratch; /* one raw sample */
  brim_frequent_call reading;
} worker;

struct brim_loader {
  brim_loader_options options;
  slot *slots;
  worker *workers; /* max(threads, 1) */
  int32_t slot_count, started;
  atomic_bool stop;
  /* protects the fields below */
  pthread_mutex_t lock;
  pthread_cond_t decoded, freed;
  int64_t taken; /* the number of the micro-batch that the next call returns */
  int64_t next;  /* the next number to decode */
  int64_t end;   /* the number at which the stream ends; INT64_MAX until known */
  bool held;     /* the consumer is using number taken-1 */
};

/* ---- Memory ---- */

/* Adds `count` items of `bytes` each to *total, starting at a cache line; returns their offset. A total that does not
 * fit stays UINT64_MAX. */
static uint64_t add_items(uint64_t *total, uint64_t count, uint64_t bytes)
{
  const uint64_t offset = *total;
  uint64_t size;
  if (__builtin_mul_overflow(count, bytes, &size) || __builtin_add_overflow(size, LINE_BYTES - 1, &size) ||
      __builtin_add_overflow(offset, size & ~(uint64_t)(LINE_BYTES - 1), total))
    *total = UINT64_MAX;
  return offset;
}

typedef struct layout {
  uint64_t slots, workers, scratch, values, labels; /* offsets */
  uint64_t scratch_each, values_each, labels_each;  /* bytes, whole cache lines */
  uint64_t bytes;
} layout;

static int32_t slots_of(const brim_loader_options *o)
{
  return o->threads == 0 ? 1 : o->slots;
}
static int32_t workers_of(const brim_loader_options *o)
{
  return o->threads == 0 ? 1 : o->threads;
}

static layout make_layout(const brim_loader_options *o)
{
  layout l = {0};
  const uint64_t slots = (uint64_t)slots_of(o), workers = (uint64_t)workers_of(o);
  add_items(&l.scratch_each, 1, o->data->scratch_bytes);
  add_items(&l.values_each, (uint64_t)o->batch_max, brim_data_values_bytes(o->data, o->real));
  add_items(&l.labels_each, (uint64_t)o->batch_max, brim_data_label_bytes(o->data, o->part, o->real));

  add_items(&l.bytes, 1, sizeof(brim_loader));
  l.slots = add_items(&l.bytes, slots, sizeof(slot));
  l.workers = add_items(&l.bytes, workers, sizeof(worker));
  l.scratch = add_items(&l.bytes, workers, l.scratch_each);
  l.values = add_items(&l.bytes, slots, l.values_each);
  l.labels = add_items(&l.bytes, slots, l.labels_each);
  return l;
}

uint64_t brim_loader_bytes(const brim_loader_options *options)
{
  return make_layout(options).bytes;
}

/* ---- Decoding ---- */

static brim_status check_span(const brim_loader *loader, const brim_span *span)
{
  const brim_data *data = loader->options.data;
  if (span->count >= 1 && span->count <= loader->options.batch_max && span->first >= 0 &&
      span->first <= data->count[span->part] - span->count)
    return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL,
                   "samples %" PRId64 " to %" PRId64 " requested, but there are %" PRId64
                   ", and a micro-batch has at most %" PRId64,
                   span->first, span->first + span->count, data->count[span->part], loader->options.batch_max);
}

static void decode_samples(brim_loader *loader, worker *w, slot *s)
{
  const brim_data *data = loader->options.data;
  const uint32_t real = loader->options.real;
  const size_t values_bytes = (size_t)brim_data_values_bytes(data, real);
  const size_t label_bytes = (size_t)brim_data_label_bytes(data, loader->options.part, real);
  brim_batch *b = &s->batch;
  s->status = check_span(loader, &b->span);
  for (int64_t i = 0; i < b->span.count && s->status == BRIM_OK; i++) {
    if (atomic_load_explicit(&loader->stop, memory_order_relaxed)) return; /* the loader is closing */
    brim_frequent_call_turn(&w->reading);
    s->status =
        brim_data_sample(data, b->span.part, b->span.epoch, b->span.first + i, real, w->scratch,
                         (char *)b->values + (size_t)i * values_bytes, (char *)b->labels + (size_t)i * label_bytes);
    brim_frequent_call_turn(&w->reading);
  }
  if (s->status != BRIM_OK) brim_error_take(&s->error);
}

static void decode(brim_loader *loader, worker *w, slot *s)
{
  static const char *const name = "decode";
  const int64_t began = brim_tracing_begin(name);
  decode_samples(loader, w, s);
  brim_tracing_end(began, BRIM_TRACING_LOADED, name, (uint64_t)s->batch.span.count);
}

/* Takes the next number, unless the stream has ended, and returns its slot, with its span. NULL at the end. Call it
 * under the lock. */
static slot *claim(brim_loader *loader)
{
  if (loader->end != INT64_MAX) return NULL;
  const brim_span span = loader->options.next(loader->options.context, loader->next);
  if (span.count == 0) {
    loader->end = loader->next;
    return NULL;
  }
  slot *s = &loader->slots[loader->next++ % loader->slot_count];
  s->batch.span = span;
  return s;
}

/* Bits of the numbers that loaders' threads have in traces. All open loaders share them, so that an evaluation's thread
 * has another number than a thread that decodes ahead for training. */
static atomic_ullong numbers;

/* Takes the lowest free number. If all 64 are taken, a thread gets a number by its place in its own loader. */
static unsigned take_number(unsigned place)
{
  unsigned long long taken = atomic_load(&numbers);
  do
    if (taken == ULLONG_MAX) return 64 + place;
  while (!atomic_compare_exchange_weak(&numbers, &taken, taken | (taken + 1)));
  return (unsigned)__builtin_ctzll(~taken);
}

static void *work(void *context)
{
  worker *w = context;
  brim_loader *loader = w->loader;
  const unsigned number = take_number((unsigned)(w - loader->workers));
  brim_tracing_name_thread(BRIM_TRACING_LOADER + number);
  pthread_mutex_lock(&loader->lock);
  for (;;) {
    const int64_t first_held = loader->taken - (loader->held ? 1 : 0);
    if (loader->stop || loader->end != INT64_MAX) break;
    if (loader->next - first_held >= loader->slot_count) {
      pthread_cond_wait(&loader->freed, &loader->lock);
      continue;
    }
    slot *s = claim(loader);
    if (s) {
      pthread_mutex_unlock(&loader->lock);
      decode(loader, w, s);
      pthread_mutex_lock(&loader->lock);
      s->ready = true;
    } else {
      pthread_cond_broadcast(&loader->freed); /* wakes the other threads, which see the end and return */
    }
    pthread_cond_signal(&loader->decoded);
  }
  pthread_mutex_unlock(&loader->lock);
  if (number < 64) atomic_fetch_and(&numbers, ~(1ull << number));
  return NULL;
}

/* ---- Opening and closing ---- */

static brim_loader *place(void *memory, const layout *l, const brim_loader_options *options)
{
  char *base = memory;
  brim_loader *loader = memory;
  memset(memory, 0, l->bytes); /* zeroing also touches the pages before the first step */
  loader->options = *options;
  loader->slots = (slot *)(base + l->slots);
  loader->workers = (worker *)(base + l->workers);
  loader->slot_count = slots_of(options);
  loader->end = INT64_MAX;
  atomic_init(&loader->stop, false);
  for (int32_t i = 0; i < loader->slot_count; i++) {
    loader->slots[i].batch.values = base + l->values + (uint64_t)i * l->values_each;
    loader->slots[i].batch.labels = base + l->labels + (uint64_t)i * l->labels_each;
  }
  for (int32_t i = 0; i < workers_of(options); i++)
    loader->workers[i] = (worker){.loader = loader, .scratch = base + l->scratch + (uint64_t)i * l->scratch_each};
  return loader;
}

static int start_threads(brim_loader *loader)
{
  int failed = 0;
  while (!failed && loader->started < loader->options.threads) {
    worker *w = &loader->workers[loader->started];
    char name[16];
    snprintf(name, sizeof name, "brim-load-%d", (int)(loader->started % 10000));
    failed = brim_thread_start(&w->thread, name, work, w);
    loader->started += !failed;
  }
  return failed;
}

brim_status brim_loader_open(const brim_loader_options *options, brim_loader **out)
{
  *out = NULL;
  if (options->threads < 0 || options->slots < 2 || options->batch_max < 1 ||
      (options->real != BRIM_DTYPE_F32 && options->real != BRIM_DTYPE_F64))
    return brim_fail(BRIM_EINVAL,
                     "a loader needs threads >= 0, slots >= 2, batches >= 1 and F32 or F64; got %d, %d, %" PRId64
                     ", %s",
                     options->threads, options->slots, options->batch_max, brim_dtype_name(options->real));
  const layout l = make_layout(options);
  void *memory = l.bytes > SIZE_MAX / 2 ? NULL : brim_try_aligned(LINE_BYTES, l.bytes);
  if (!memory)
    return brim_fail(BRIM_ENOMEM_HOST,
                     "no memory for %d micro-batches of %" PRId64 " samples on the host (%" PRIu64
                     " bytes)\nlower training.batch_size or training.num_workers",
                     slots_of(options), options->batch_max, l.bytes);
  brim_loader *loader = place(memory, &l, options);
  pthread_mutex_init(&loader->lock, NULL);
  pthread_cond_init(&loader->decoded, NULL);
  pthread_cond_init(&loader->freed, NULL);
  const void *read = (const void *)(uintptr_t)loader->options.data->ops->read;
  for (int32_t i = 0; i < workers_of(&loader->options); i++)
    brim_frequent_call_watch(&loader->workers[i].reading, "the dataset's read", read);
  const int failed = start_threads(loader);
  if (failed) {
    const int32_t started = loader->started;
    brim_loader_close(loader);
    return brim_fail(BRIM_ENOMEM_HOST, "cannot start loader thread %d of %d: %s\nlower training.num_workers",
                     started + 1, options->threads, strerror(failed));
  }
  *out = loader;
  return BRIM_OK;
}

void brim_loader_close(brim_loader *loader)
{
  if (!loader) return;
  pthread_mutex_lock(&loader->lock);
  loader->stop = true;
  pthread_cond_broadcast(&loader->freed);
  pthread_mutex_unlock(&loader->lock);
  for (int32_t i = 0; i < loader->started; i++) pthread_join(loader->workers[i].thread, NULL);
  for (int32_t i = 0; i < workers_of(&loader->options); i++) brim_frequent_call_unwatch(&loader->workers[i].reading);
  pthread_cond_destroy(&loader->freed);
  pthread_cond_destroy(&loader->decoded);
  pthread_mutex_destroy(&loader->lock);
  free(loader);
}

/* ---- Taking ---- */

/* Returns the slot of the consumer's next number, decoded; NULL at the end of the stream. Call it under the lock. */
static slot *wait_for(brim_loader *loader)
{
  slot *s = &loader->slots[loader->taken % loader->slot_count];
  if (loader->options.threads == 0) {
    s = claim(loader);
    if (s) decode(loader, &loader->workers[0], s);
    return s;
  }
  while (!s->ready && loader->taken != loader->end) pthread_cond_wait(&loader->decoded, &loader->lock);
  return s->ready ? s : NULL;
}

brim_status brim_loader_next(brim_loader *loader, const brim_batch **out)
{
  *out = NULL;
  pthread_mutex_lock(&loader->lock);
  if (loader->held) { /* releases the previous one */
    loader->held = false;
    pthread_cond_signal(&loader->freed);
  }
  slot *s = wait_for(loader);
  if (s) {
    loader->taken++;
    loader->held = true;
    s->ready = false;
  }
  pthread_mutex_unlock(&loader->lock);
  if (!s) return BRIM_OK;
  if (s->status != BRIM_OK) brim_error_put(&s->error);
  if (s->status == BRIM_OK) *out = &s->batch;
  return s->status;
}
