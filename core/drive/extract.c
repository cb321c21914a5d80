/* See extract.h. */
#include "drive/extract.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/thread.h"
#include "drive/placement.h"
#include "setup/features.h"

#define REPORT_SECONDS 10 /* between progress lines */

typedef struct extraction {
  brim_drive *drive;
  brim_setup *setup; /* describes the samples */
  brim_plan *plan;
  brim_exec *exec;
  const brim_program *program;
  brim_feature_writer *writer;
  int64_t batch, done, total;
  double reported_at;
  void *values, *kept; /* [batch, elements]; kept: the features in the backend's type */
  int32_t *labels;     /* [batch] */
  float *row;
} extraction;

typedef struct stream {
  enum brim_part part;
  int64_t count, batch;
} stream;

static brim_span next_span(void *context, int64_t sequence)
{
  const stream *s = context;
  const int64_t first = sequence * s->batch, rest = s->count - first;
  return (brim_span){s->part, 0, first, rest <= 0 ? 0 : rest < s->batch ? rest : s->batch};
}

static brim_status keep_row(extraction *x, const brim_span *span, int64_t i)
{
  const int64_t width = x->writer->shape.values,
                index = brim_data_index(&x->setup->data, span->part, 0, span->first + i);
  const enum brim_feature_split split = span->part == BRIM_PART_TEST ? BRIM_FEATURES_TEST : BRIM_FEATURES_TRAIN;
  for (int64_t f = 0; f < width; f++) {
    x->row[f] = (float)brim_value_at(x->program->graph->kept->dtype, x->kept, i * width + f);
    if (!isfinite(x->row[f]))
      return brim_fail(BRIM_ENUMERIC, "the backbone's features of sample %lld are not finite", (long long)index);
  }
  return brim_feature_writer_put(x->writer, split, index, x->row, x->labels[i]);
}

static void log_progress(extraction *x)
{
  if (brim_now() - x->reported_at < REPORT_SECONDS) return;
  x->reported_at = brim_now();
  brim_log(BRIM_LOG_INFO, "features: %lld of %lld samples", (long long)x->done, (long long)x->total);
}

/* The rest of the last batch still has earlier samples, whose results are ignored. */
static brim_status compute_batch(extraction *x, const brim_batch *batch)
{
  const brim_data *data = &x->setup->data;
  const brim_step step = {.loss_scale = 1};
  const size_t count = (size_t)batch->span.count;
  memcpy(x->values, batch->values, count * (size_t)data->elements * brim_dtype_bytes(x->setup->backend_ops->real));
  memcpy(x->labels, batch->labels, count * sizeof *x->labels);
  BRIM_TRY(brim_exec_load(x->exec, x->program, x->values, x->labels));
  BRIM_TRY(brim_exec_run(x->exec, x->program, &step, NULL));
  BRIM_TRY(brim_exec_read(x->exec, x->program, x->program->graph->kept, x->kept));
  for (int64_t i = 0; i < batch->span.count; i++) BRIM_TRY(keep_row(x, &batch->span, i));
  x->done += batch->span.count;
  log_progress(x);
  return BRIM_OK;
}

static brim_status compute_batches(extraction *x, brim_loader *loader)
{
  const volatile int *stop = x->setup->options.stop;
  for (;;) {
    const brim_batch *batch = NULL;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted while features were computed");
    BRIM_TRY(brim_loader_next(loader, &batch));
    if (!batch) return BRIM_OK;
    BRIM_TRY(compute_batch(x, batch));
  }
}

static brim_status compute_part(extraction *x, enum brim_part part)
{
  stream spans = {part, x->setup->data.count[part], x->batch};
  const int32_t threads = (int32_t)x->setup->settings->training.num_workers;
  const brim_loader_options options = {.data = &x->setup->data,
                                       .part = part,
                                       .batch_max = x->batch,
                                       .real = x->setup->backend_ops->real,
                                       .threads = threads,
                                       .slots = threads + 2,
                                       .next = next_span,
                                       .context = &spans};
  brim_loader *loader = NULL;
  BRIM_TRY(brim_loader_open(&options, &loader));
  const brim_status status = compute_batches(x, loader);
  brim_loader_close(loader);
  return status;
}

static brim_status compute_all(extraction *x)
{
  const brim_graph *g = x->program->graph;
  uint64_t hash;
  x->values = brim_try_calloc(1, g->input->bytes);
  x->labels = brim_try_calloc(1, g->label->bytes);
  x->kept = brim_try_calloc(1, g->kept->bytes);
  x->row = brim_try_calloc((size_t)x->writer->shape.values, sizeof *x->row);
  if (!x->values || !x->labels || !x->kept || !x->row)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a micro-batch");
  BRIM_TRY(brim_frozen_write(x->setup, x->exec, x->program, &hash));
  BRIM_TRY(brim_setup_finish_data(x->setup));
  for (int part = BRIM_PART_TRAIN; part <= BRIM_PART_TEST; part++)
    if (x->setup->data.count[part] > 0) BRIM_TRY(compute_part(x, (enum brim_part)part));
  return BRIM_OK;
}

/* Computes the features on the run's device, in an evaluation plan whose memory is released afterwards. */
static brim_status compute(extraction *x)
{
  const brim_evaluation_wish wish = {.count = x->batch, .batch = x->batch, .keep_features = true};
  const brim_status status = brim_placement_open(x->drive, &wish, &x->plan, &x->exec);
  if (status != BRIM_OK) return status;
  x->program = brim_plan_program(x->plan, BRIM_PROGRAM_EVALUATE, x->batch);
  const brim_status computed = compute_all(x);
  brim_exec_close(x->exec);
  brim_plan_free(x->plan);
  free(x->values);
  free(x->labels);
  free(x->kept);
  free(x->row);
  return computed;
}

/* Returns the batch for extraction, which does not depend on the micro-batch, because features are computed before that
 * is chosen. *total: number of all samples. */
static int64_t batch_of(const brim_setup *raw, int64_t *total)
{
  const int64_t *count = raw->data.count;
  const int64_t batch = brim_setup_eval_batch(raw, brim_setup_limit_batch(raw, brim_setup_micro_batch(raw)));
  *total = count[BRIM_PART_TRAIN] + count[BRIM_PART_VALIDATION] + count[BRIM_PART_TEST];
  return batch < *total ? batch : *total;
}

static brim_status fill_file(brim_drive *d, brim_feature_writer *w)
{
  int64_t total;
  const int64_t batch = batch_of(d->setup, &total);
  extraction x = {.drive = d, .setup = d->setup, .writer = w, .total = total, .reported_at = brim_now()};
  const double start = brim_now();
  x.batch = batch;
  brim_log(BRIM_LOG_INFO, "features: computing them once for %lld samples, %lld numbers each", (long long)total,
           (long long)w->shape.values);
  BRIM_TRY(compute(&x));
  BRIM_TRY(brim_feature_writer_close(w));
  brim_log(BRIM_LOG_INFO, "features: computed in %.1f s and kept in %s for later runs", brim_now() - start, w->path);
  return BRIM_OK;
}

/* Computes all features. Meanwhile the drive uses the setup that describes the samples. */
static brim_status fill_from_samples(brim_drive *d, brim_feature_set *set, brim_feature_writer *w)
{
  brim_setup *own = d->setup;
  d->setup = &set->raw;
  d->planner.setup = d->setup;
  const brim_status status = fill_file(d, w);
  d->setup = own;
  d->planner.setup = own;
  d->started = false;
  d->planner.has_begun = d->dialogue.has_begun;
  brim_planner_forget(&d->planner);
  return status;
}

/* Makes the file. Other ranks of the host and other runs wait for the process that computes it. */
static brim_status make(brim_drive *d, brim_feature_set *set, const char *path)
{
  brim_feature_writer writer;
  BRIM_TRY(brim_feature_writer_open(&writer, path, &set->file.shape, d->setup->options.stop));
  brim_status status = BRIM_OK;
  if (!brim_features_find(set, path)) {
    status = fill_from_samples(d, set, &writer);
    if (status == BRIM_OK && !brim_features_find(set, path))
      status = brim_fail(BRIM_EIO, "cannot read '%s' back", path);
  }
  brim_feature_writer_cancel(&writer);
  return status;
}

brim_status brim_extract_features(brim_drive *d)
{
  char path[BRIM_PATH_MAX];
  brim_feature_set *set = d->setup->features;
  if (!set || !d->setup->options.read_data || set->file.map) return BRIM_OK;
  BRIM_TRY(brim_feature_file_path(set->file.shape.key, path));
  return make(d, set, path);
}

brim_status brim_extract_peak(const brim_drive *d, uint64_t *bytes)
{
  brim_planner raw = d->planner;
  brim_plan *plan = NULL;
  int64_t total;
  *bytes = 0;
  if (!d->setup->features || d->setup->features->file.map) return BRIM_OK;
  raw.setup = &d->setup->features->raw;
  const int64_t batch = batch_of(raw.setup, &total);
  const brim_evaluation_wish wish = {.count = batch, .batch = batch, .keep_features = true};
  BRIM_TRY(brim_planner_plan_evaluation(&raw, &d->choice, &wish, &plan));
  *bytes = plan->peak_bytes;
  brim_plan_free(plan);
  return BRIM_OK;
}
