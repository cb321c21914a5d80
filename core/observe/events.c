/* The fields of the messages, by number:
 *
 *     Value            1: tag   4: Image   5: HistogramProto   8: TensorProto   9: SummaryMetadata
 *     Image            1: height   2: width   3: colorspace   4: encoded_image_string
 *     HistogramProto   1: min   2: max   3: num   4: sum   5: sum_squares   6: bucket_limit   7: bucket     doubles
 *     TensorProto      1: dtype, string = 7   2: shape { 2: dim { 1: size } }   8: string_val
 *     SummaryMetadata  1: PluginData { 1: plugin_name   2: content }
 *     HParamsPluginData   1: version   2: Experiment   3: SessionStartInfo   4: SessionEndInfo
 *     Experiment       4: HParamInfo { 1: name   4: type }   5: MetricInfo { 1: { 2: tag } }
 *     SessionStartInfo 1: map of hyperparameters { 1: key   2: { 2: number   3: string } }   4: group   5: start
 * seconds SessionEndInfo   1: status   2: end seconds */
#include "observe/events.h"

#include <math.h>
#include <string.h>

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2 };
enum { STRING = 7 };                       /* TensorFlow's type */
enum { TYPE_STRING = 1, TYPE_NUMBER = 3 }; /* types of a hyperparameter */
enum { SUCCESS = 1, FAILURE = 2 };         /* states of a session */

/* ---- fields ---- */

static void add_number(brim_text *m, uint64_t value)
{
  char byte;
  for (; value >= 0x80; value >>= 7) {
    byte = (char)((value & 0x7f) | 0x80);
    brim_text_add_n(m, &byte, 1);
  }
  byte = (char)value;
  brim_text_add_n(m, &byte, 1);
}

static void add_varint(brim_text *m, unsigned field, uint64_t value)
{
  add_number(m, field << 3 | VARINT);
  add_number(m, value);
}

static void add_bytes(brim_text *m, unsigned field, const void *bytes, size_t count)
{
  add_number(m, field << 3 | BYTES);
  add_number(m, count);
  if (count > 0) brim_text_add_n(m, bytes, count);
}

static void add_string(brim_text *m, unsigned field, const char *text)
{
  add_bytes(m, field, text, strlen(text));
}

/* Adds eight bytes, little-endian, as x86-64 stores them. */
static void add_double(brim_text *m, unsigned field, double value)
{
  add_number(m, field << 3 | FIXED64);
  brim_text_add_n(m, (const char *)&value, sizeof value);
}

/* Adds a message and releases it. */
static void add_message(brim_text *m, unsigned field, brim_text *inner)
{
  add_bytes(m, field, inner->s, inner->length);
  brim_text_release(inner);
}

/* ---- summaries ---- */

/* Writes an event with one value, and releases it. `plugin`: the plugin to which the data `content` belongs; NULL:
 * none. */
static brim_status add_value(brim_tensorboard *t, int64_t step, const char *tag, brim_text *value, const char *plugin,
                             brim_text *content)
{
  brim_text all = {0}, summary = {0}, metadata = {0}, data = {0};
  add_string(&all, 1, tag);
  if (value->length > 0) brim_text_add_n(&all, value->s, value->length);
  if (plugin) {
    add_string(&data, 1, plugin);
    if (content) add_message(&data, 2, content);
    add_message(&metadata, 1, &data);
    add_message(&all, 9, &metadata);
  }
  add_message(&summary, 1, &all);
  const brim_status status = brim_tensorboard_summary(t, step, summary.s, summary.length);
  brim_text_release(&summary);
  brim_text_release(value);
  return status;
}

/* Adds a bucket of the values from the previous limit to this one. */
static void add_bucket(brim_text *limits, brim_text *counts, double limit, uint64_t count)
{
  const double number = (double)count;
  brim_text_add_n(limits, (const char *)&limit, sizeof limit);
  brim_text_add_n(counts, (const char *)&number, sizeof number);
}

/* Adds buckets from the most negative values to the largest; a negative bin ends at its smaller magnitude. Zeros are in
 * the middle. The first and the last bins also contain magnitudes beyond their limits. */
static void add_buckets(const brim_histogram_figures *f, brim_text *out)
{
  brim_text limits = {0}, counts = {0};
  int low = BRIM_HISTOGRAM_BINS, high = -1; /* the bins of one sign that are not empty, from the largest magnitude */
  for (int i = 0; i < BRIM_HISTOGRAM_BINS; i++) {
    if (f->negative[i] > 0) low = i;
    if (f->positive[i] > 0) high = i;
  }
  if (low < BRIM_HISTOGRAM_BINS) {
    add_bucket(&limits, &counts, -ldexp(1, low + 1 + BRIM_HISTOGRAM_FIRST), 0);
    for (int i = low; i > 0; i--) add_bucket(&limits, &counts, -ldexp(1, i + BRIM_HISTOGRAM_FIRST), f->negative[i]);
  }
  add_bucket(&limits, &counts, -ldexp(1, BRIM_HISTOGRAM_FIRST - 1), f->negative[0]);
  add_bucket(&limits, &counts, ldexp(1, BRIM_HISTOGRAM_FIRST - 1), f->zeros);
  for (int i = 0; i <= high; i++) add_bucket(&limits, &counts, ldexp(1, i + 1 + BRIM_HISTOGRAM_FIRST), f->positive[i]);
  add_message(out, 6, &limits);
  add_message(out, 7, &counts);
}

brim_status brim_tensorboard_histogram(brim_tensorboard *t, int64_t step, const char *tag,
                                       const brim_histogram_figures *f)
{
  brim_text histogram = {0}, value = {0};
  add_double(&histogram, 1, isfinite(f->least) ? f->least : 0);
  add_double(&histogram, 2, isfinite(f->most) ? f->most : 0);
  add_double(&histogram, 3, (double)(f->values - f->nans - f->infinite));
  add_double(&histogram, 4, f->sum);
  add_double(&histogram, 5, f->squares);
  add_buckets(f, &histogram);
  add_message(&value, 5, &histogram);
  return add_value(t, step, tag, &value, NULL, NULL);
}

brim_status brim_tensorboard_image(brim_tensorboard *t, int64_t step, const char *tag, const void *png, size_t bytes,
                                   int64_t rows, int64_t columns, int64_t channels)
{
  brim_text image = {0}, value = {0};
  add_varint(&image, 1, (uint64_t)rows);
  add_varint(&image, 2, (uint64_t)columns);
  add_varint(&image, 3, (uint64_t)channels);
  add_bytes(&image, 4, png, bytes);
  add_message(&value, 4, &image);
  return add_value(t, step, tag, &value, NULL, NULL);
}

brim_status brim_tensorboard_text(brim_tensorboard *t, int64_t step, const char *tag, const char *text)
{
  brim_text dimension = {0}, shape = {0}, tensor = {0}, value = {0};
  add_varint(&dimension, 1, 1);
  add_message(&shape, 2, &dimension);
  add_varint(&tensor, 1, STRING);
  add_message(&tensor, 2, &shape);
  add_string(&tensor, 8, text);
  add_message(&value, 8, &tensor);
  return add_value(t, step, tag, &value, "text", NULL);
}

/* ---- hyperparameters ---- */

static void add_experiment(brim_text *out, const brim_hyperparameter *value, size_t count, const char *const *metric,
                           size_t metrics)
{
  brim_text experiment = {0}, info = {0}, inner = {0};
  for (size_t i = 0; i < count; i++) {
    add_string(&info, 1, value[i].name);
    add_varint(&info, 4, value[i].is_number ? TYPE_NUMBER : TYPE_STRING);
    add_message(&experiment, 4, &info);
  }
  for (size_t i = 0; i < metrics; i++) {
    add_string(&inner, 2, metric[i]);
    add_message(&info, 1, &inner);
    add_message(&experiment, 5, &info);
  }
  add_message(out, 2, &experiment);
}

static void add_start(brim_text *out, const brim_hyperparameter *value, size_t count)
{
  brim_text start = {0}, entry = {0}, inner = {0};
  for (size_t i = 0; i < count; i++) {
    if (value[i].is_number)
      add_double(&inner, 2, value[i].number);
    else
      add_string(&inner, 3, value[i].text);
    add_string(&entry, 1, value[i].name);
    add_message(&entry, 2, &inner);
    add_message(&start, 1, &entry);
  }
  add_double(&start, 5, brim_wall_now());
  add_message(out, 3, &start);
}

static brim_status add_hyperparameters(brim_tensorboard *t, const char *tag, brim_text *content)
{
  brim_text none = {0};
  return add_value(t, 0, tag, &none, "hparams", content);
}

brim_status brim_tensorboard_hyperparameters(brim_tensorboard *t, const brim_hyperparameter *value, size_t count,
                                             const char *const *metric, size_t metrics)
{
  brim_text experiment = {0}, start = {0};
  add_experiment(&experiment, value, count, metric, metrics);
  add_start(&start, value, count);
  const brim_status status = add_hyperparameters(t, "_hparams_/experiment", &experiment);
  const brim_status second = add_hyperparameters(t, "_hparams_/session_start_info", &start);
  return status == BRIM_OK ? second : status;
}

brim_status brim_tensorboard_end(brim_tensorboard *t, bool is_well)
{
  brim_text content = {0}, end = {0};
  add_varint(&end, 1, is_well ? SUCCESS : FAILURE);
  add_double(&end, 2, brim_wall_now());
  add_message(&content, 4, &end);
  return add_hyperparameters(t, "_hparams_/session_end_info", &content);
}
