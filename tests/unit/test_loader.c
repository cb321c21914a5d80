/* Tests the loader: the same stream for all numbers of threads and micro-batches, bounded memory and look-ahead, errors
 * at their position, and an end at any moment. The dataset's delay differs by sample, so that threads overtake each
 * other. The test also runs under TSan. */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tracing.h"
#include "data/data.h"
#include "unit/made_dataset.h"

#define COUNT 203 /* not a multiple of any micro-batch here */
#define ELEMENTS 20
#define EPOCHS 2

/* The micro-batches of a part, of `batch` samples each, over some epochs. */
typedef struct order {
  enum brim_part part;
  int64_t count, batch, epochs, asked; /* asked: the number of spans requested */
} order;

static brim_span next_span(void *context, int64_t sequence)
{
  order *o = context;
  o->asked++;
  const int64_t per_epoch = (o->count + o->batch - 1) / o->batch, epoch = sequence / per_epoch;
  if (epoch >= o->epochs) return (brim_span){o->part, 0, 0, 0};
  const int64_t first = sequence % per_epoch * o->batch, rest = o->count - first;
  return (brim_span){o->part, epoch, first, rest < o->batch ? rest : o->batch};
}

typedef struct fixture {
  made dataset;
  brim_settings settings;
  brim_data data;
  order order;
  brim_loader_options options;
} fixture;

static void prepare(fixture *f, int32_t threads, int64_t batch)
{
  *f = (fixture){.dataset = made_images(COUNT, 1, 4, 5), .settings = {.seed = 3}};
  f->settings.augment = (brim_augment_settings){.flip = true, .crop_padding = 1};
  f->dataset.slow = true;
  assert_int_equal(brim_data_open(&f->data, &made_plugin, &f->dataset, &f->settings), BRIM_OK);
  f->order = (order){BRIM_PART_TRAIN, COUNT, batch, EPOCHS, 0};
  f->options = (brim_loader_options){.data = &f->data,
                                     .batch_max = batch,
                                     .real = BRIM_DTYPE_F32,
                                     .threads = threads,
                                     .slots = threads + 2,
                                     .next = next_span,
                                     .context = &f->order};
}

static brim_loader *open_loader(const fixture *f)
{
  brim_loader *loader = NULL;
  if (brim_loader_open(&f->options, &loader) != BRIM_OK) fail_msg("%s", brim_error_text());
  return loader;
}

typedef struct stream {
  float values[EPOCHS * COUNT * ELEMENTS];
  int32_t labels[EPOCHS * COUNT];
  int64_t samples;
} stream;

static void take_all(fixture *f, stream *out)
{
  brim_loader *loader = open_loader(f);
  out->samples = 0;
  for (;;) {
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    if (!b) break;
    assert_int_equal(b->span.epoch * COUNT + b->span.first, out->samples);
    assert_true(out->samples + b->span.count <= EPOCHS * COUNT);
    memcpy(out->values + out->samples * ELEMENTS, b->values, (size_t)b->span.count * ELEMENTS * sizeof(float));
    memcpy(out->labels + out->samples, b->labels, (size_t)b->span.count * sizeof(int32_t));
    out->samples += b->span.count;
  }
  const brim_batch *b = NULL;
  assert_int_equal(brim_loader_next(loader, &b), BRIM_OK); /* after the end, every call returns the end */
  assert_null(b);
  brim_loader_close(loader);
}

static void stream_is_the_same_for_any_threads_and_micro_batch(void **state)
{
  static const int32_t threads[] = {0, 1, 4};
  static const int64_t batches[] = {16, 1, 50, COUNT, 1000};
  stream *expected = calloc(1, sizeof *expected), *got = calloc(1, sizeof *got);
  fixture f;
  prepare(&f, 0, 16);
  for (int64_t i = 0; i < EPOCHS * COUNT; i++) { /* reads the data directly */
    uint8_t scratch[ELEMENTS];
    assert_int_equal(brim_data_sample(&f.data, BRIM_PART_TRAIN, i / COUNT, i % COUNT, BRIM_DTYPE_F32, scratch,
                                      expected->values + i * ELEMENTS, &expected->labels[i]),
                     BRIM_OK);
  }
  for (size_t t = 0; t < 3; t++) {
    for (size_t b = 0; b < 5; b++) {
      prepare(&f, threads[t], batches[b]);
      memset(got, 0, sizeof *got);
      take_all(&f, got);
      assert_int_equal(got->samples, EPOCHS * COUNT);
      assert_memory_equal(got->values, expected->values, sizeof got->values);
      assert_memory_equal(got->labels, expected->labels, sizeof got->labels);
    }
  }
  free(expected);
  free(got);
}

/* Tokens and real numbers have several labels a sample. */
static void labels_of_any_length_come_in_their_places(void **state)
{
  for (int tokens = 0; tokens < 2; tokens++)
    for (int real = 0; real < 2; real++) {
      fixture f;
      prepare(&f, 2, 16);
      f.dataset = tokens ? made_tokens(COUNT, 9) : made_values(COUNT, 3, 3, 4);
      f.settings.augment = (brim_augment_settings){0};
      assert_int_equal(brim_data_open(&f.data, &made_plugin, &f.dataset, &f.settings), BRIM_OK);
      f.options.real = real ? BRIM_DTYPE_F64 : BRIM_DTYPE_F32;
      const size_t values_bytes = brim_data_values_bytes(&f.data, f.options.real);
      const size_t label_bytes = brim_data_label_bytes(&f.data, BRIM_PART_TRAIN, f.options.real);
      brim_loader *loader = open_loader(&f);
      const brim_batch *b = NULL;
      while (brim_loader_next(loader, &b) == BRIM_OK && b)
        for (int64_t i = 0; i < b->span.count; i++) {
          _Alignas(double) char scratch[64], values[128], label[64];
          assert_int_equal(brim_data_sample(&f.data, b->span.part, b->span.epoch, b->span.first + i, f.options.real,
                                            scratch, values, label),
                           BRIM_OK);
          assert_memory_equal((const char *)b->values + (size_t)i * values_bytes, values, values_bytes);
          assert_memory_equal((const char *)b->labels + (size_t)i * label_bytes, label, label_bytes);
        }
      brim_loader_close(loader);
    }
}

static void doubles_are_the_same_numbers(void **state)
{
  fixture f, g;
  prepare(&f, 0, 64);
  prepare(&g, 2, 64);
  g.options.real = BRIM_DTYPE_F64;
  brim_loader *narrow = open_loader(&f), *wide = open_loader(&g);
  for (;;) {
    const brim_batch *a = NULL, *b = NULL;
    assert_int_equal(brim_loader_next(narrow, &a), BRIM_OK);
    assert_int_equal(brim_loader_next(wide, &b), BRIM_OK);
    assert_true(!a == !b);
    if (!a) break;
    for (int64_t k = 0; k < a->span.count * ELEMENTS; k++)
      assert_true(((const double *)b->values)[k] == (double)((const float *)a->values)[k]);
  }
  brim_loader_close(narrow);
  brim_loader_close(wide);
}

static void last_micro_batch_has_the_remainder(void **state)
{
  for (int32_t threads = 0; threads < 3; threads++) {
    fixture f;
    prepare(&f, threads, 64);
    f.order.epochs = 1;
    brim_loader *loader = open_loader(&f);
    static const int64_t counts[] = {64, 64, 64, 11};
    for (int i = 0; i < 4; i++) {
      const brim_batch *b = NULL;
      assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
      assert_int_equal(b->span.count, counts[i]);
    }
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    assert_null(b);
    brim_loader_close(loader);
  }
}

static void batch_stays_valid_until_the_next_call(void **state)
{
  fixture f;
  prepare(&f, 3, 8);
  f.options.slots = 2;
  brim_loader *loader = open_loader(&f);
  for (int i = 0; i < 10; i++) {
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    float before[8 * ELEMENTS];
    memcpy(before, b->values, sizeof before);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* the threads have time to write to other slots */
    assert_memory_equal(before, b->values, sizeof before);
  }
  brim_loader_close(loader);
}

static void never_looks_further_ahead_than_its_slots(void **state)
{
  fixture f;
  prepare(&f, 4, 4);
  f.options.slots = 3;
  brim_loader *loader = open_loader(&f);
  for (int64_t taken = 0; taken < 20; taken++) {
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  brim_loader_close(loader);              /* only after the threads have ended may the test read `asked` */
  assert_in_range(f.order.asked, 20, 22); /* the micro-batch in use is one of the three */
}

static void threads_of_two_loaders_have_different_numbers_in_traces(void **state)
{
  fixture f[2];
  brim_loader *loader[2];
  const brim_batch *b = NULL;
  bool has_number[3] = {false};
  size_t count = 0;
  uint64_t lost = 0;
  assert_int_equal(brim_tracing_reserve(1000), BRIM_OK);
  brim_tracing_start();
  for (int i = 0; i < 2; i++) {
    prepare(&f[i], 1, 16);
    loader[i] = open_loader(&f[i]);
  }
  for (int i = 0; i < 2; i++) assert_int_equal(brim_loader_next(loader[i], &b), BRIM_OK);
  for (int i = 0; i < 2; i++) brim_loader_close(loader[i]);
  brim_tracing_stop();
  const brim_tracing_event *event = brim_tracing_events(&count, &lost);
  for (size_t i = 0; i < count; i++) {
    assert_in_range(event[i].thread, BRIM_TRACING_LOADER, BRIM_TRACING_LOADER + 1);
    has_number[event[i].thread] = true;
  }
  assert_true(has_number[BRIM_TRACING_LOADER] && has_number[BRIM_TRACING_LOADER + 1]);
  brim_tracing_release();
}

static void closes_at_any_moment(void **state)
{
  brim_loader_close(NULL);
  for (int32_t threads = 0; threads < 5; threads += 2) {
    for (int taken = 0; taken < 30; taken++) {
      fixture f;
      prepare(&f, threads, 16);
      brim_loader *loader = open_loader(&f);
      for (int i = 0; i < taken; i++) {
        const brim_batch *b = NULL;
        assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
      }
      /* Sometimes the threads get the time to fill all slots and to wait. */
      if (taken % 3 == 0) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
      brim_loader_close(loader);
    }
  }
}

static void an_error_arrives_in_its_place_and_the_stream_continues(void **state)
{
  for (int32_t threads = 0; threads < 5; threads += 2) {
    fixture f;
    prepare(&f, threads, 10);
    f.order.epochs = 1;
    f.dataset.fail_read = 77;
    int64_t place = 0;
    for (; place < COUNT; place++) { /* the position of sample 77 in the epoch */
      uint8_t scratch[ELEMENTS];
      float values[ELEMENTS];
      int32_t label;
      if (brim_data_sample(&f.data, BRIM_PART_TRAIN, 0, place, BRIM_DTYPE_F32, scratch, values, &label) != BRIM_OK)
        break;
    }
    assert_in_range(place, 0, COUNT - 1);
    brim_loader *loader = open_loader(&f);
    for (int64_t i = 0; i * 10 < COUNT; i++) {
      const brim_batch *b = NULL;
      const brim_status status = brim_loader_next(loader, &b);
      if (place / 10 == i) {
        assert_int_equal(status, BRIM_EIO);
        assert_null(b);
        assert_string_equal(brim_error_text(),
                            "the disk is gone\nwhile reading sample 77 of the train split of dataset 'made'");
      } else {
        assert_int_equal(status, BRIM_OK);
        assert_int_equal(b->span.first, i * 10);
      }
    }
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    assert_null(b);
    brim_loader_close(loader);
  }
}

static brim_span span_outside(void *context, int64_t sequence)
{
  (void)context;
  static const brim_span spans[] = {{BRIM_PART_TRAIN, 0, COUNT - 3, 4}, {BRIM_PART_TRAIN, 0, 0, 17}};
  return sequence < 2 ? spans[sequence] : (brim_span){BRIM_PART_TRAIN, 0, 0, 0};
}

static void spans_outside_the_part_or_the_slot_are_errors(void **state)
{
  for (int32_t threads = 0; threads < 2; threads++) {
    fixture f;
    prepare(&f, threads, 16);
    f.options.next = span_outside;
    brim_loader *loader = open_loader(&f);
    const brim_batch *b = NULL;
    assert_int_equal(brim_loader_next(loader, &b), BRIM_EINTERNAL);
    assert_int_equal(brim_loader_next(loader, &b), BRIM_EINTERNAL);
    assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
    assert_null(b);
    brim_loader_close(loader);
  }
}

static void takes_the_declared_memory(void **state)
{
  static const int32_t threads[] = {0, 1, 5};
  for (int i = 0; i < 3; i++) {
    fixture f;
    prepare(&f, threads[i], 33);
    const uint64_t bytes = brim_loader_bytes(&f.options);
    const uint64_t values = (uint64_t)(threads[i] ? threads[i] + 2 : 1) * 33 * ELEMENTS * sizeof(float);
    assert_true(bytes >= values && bytes < values + 64 * 1024);
    brim_loader *loader = open_loader(&f);
    const size_t usable = malloc_usable_size(loader); /* the loader is one block, which the allocator rounds up */
    assert_true(usable >= bytes && usable < bytes + 128);
    brim_loader_close(loader);
  }
}

static void impossible_sizes_and_options_are_refused(void **state)
{
  fixture f;
  prepare(&f, 1, 16);
  brim_loader *loader = NULL;
  f.options.batch_max = INT64_MAX;
  assert_true(brim_loader_bytes(&f.options) == UINT64_MAX);
  assert_int_equal(brim_loader_open(&f.options, &loader), BRIM_ENOMEM_HOST);
  assert_null(loader);
  f.options.batch_max = 0;
  assert_int_equal(brim_loader_open(&f.options, &loader), BRIM_EINVAL);
  f.options.batch_max = 16;
  f.options.slots = 1;
  assert_int_equal(brim_loader_open(&f.options, &loader), BRIM_EINVAL);
  f.options.slots = 2;
  f.options.real = BRIM_DTYPE_U8;
  assert_int_equal(brim_loader_open(&f.options, &loader), BRIM_EINVAL);
  f.options.real = BRIM_DTYPE_F32;
  f.options.threads = -1;
  assert_int_equal(brim_loader_open(&f.options, &loader), BRIM_EINVAL);
}

static volatile sig_atomic_t handled;
static void on_signal(int signal)
{
  (void)signal;
  handled = 1;
}

/* A signal that the main thread blocks stays pending: no loader thread takes it. */
static void threads_leave_signals_to_the_main_thread(void **state)
{
  fixture f;
  prepare(&f, 4, 16);
  brim_loader *loader = open_loader(&f);
  struct sigaction action = {.sa_handler = on_signal}, old_action;
  sigset_t set, before, pending;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaction(SIGUSR1, &action, &old_action);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  assert_int_equal(kill(getpid(), SIGUSR1), 0);
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  sigpending(&pending);
  assert_int_equal(sigismember(&pending, SIGUSR1), 1);
  assert_int_equal(handled, 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  brim_loader_close(loader);
  assert_int_equal(handled, 1); /* the main thread's mask is unchanged */
  sigaction(SIGUSR1, &old_action, NULL);
}

#if defined(__has_feature) /* for clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#ifndef SANITIZED
static void threads_that_cannot_be_started_are_reported(void **state)
{
  fixture f;
  prepare(&f, 200, 2);
  struct rlimit before, tight;
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  tight = before;
  tight.rlim_cur = (rlim_t)256 << 20; /* 200 stacks do not fit */
  assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
  brim_loader *loader = NULL;
  const brim_status status = brim_loader_open(&f.options, &loader);
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_int_equal(status, BRIM_ENOMEM_HOST);
  assert_null(loader);
  assert_non_null(strstr(brim_error_text(), "of 200: Resource temporarily unavailable\nlower training.num_workers"));
}
#else
static void threads_that_cannot_be_started_are_reported(void **state)
{
  skip(); /* sanitizers need address space without a limit */
}
#endif

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stream_is_the_same_for_any_threads_and_micro_batch),
      cmocka_unit_test(doubles_are_the_same_numbers),
      cmocka_unit_test(labels_of_any_length_come_in_their_places),
      cmocka_unit_test(last_micro_batch_has_the_remainder),
      cmocka_unit_test(batch_stays_valid_until_the_next_call),
      cmocka_unit_test(never_looks_further_ahead_than_its_slots),
      cmocka_unit_test(threads_of_two_loaders_have_different_numbers_in_traces),
      cmocka_unit_test(closes_at_any_moment),
      cmocka_unit_test(an_error_arrives_in_its_place_and_the_stream_continues),
      cmocka_unit_test(spans_outside_the_part_or_the_slot_are_errors),
      cmocka_unit_test(takes_the_declared_memory),
      cmocka_unit_test(impossible_sizes_and_options_are_refused),
      cmocka_unit_test(threads_leave_signals_to_the_main_thread),
      cmocka_unit_test(threads_that_cannot_be_started_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
