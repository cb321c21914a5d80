#include "train/samples.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/file.h"
#include "base/utf8.h"
#include "observe/png.h"
#include "store/rundir.h"

#define INPUTS_MAX 8       /* number of values shown of a sample that is not a picture */
#define TOKENS_BEFORE 48   /* tokens shown of the text before a token */
#define TOKENS_AFTER 16    /* tokens shown of the text after it */
#define TEXT_BYTES_MAX 240 /* limit for each of these two texts */

/* ---- the list ---- */

void brim_samples_begin(brim_samples *samples, enum brim_part part)
{
  samples->count = samples->wrong = samples->samples = samples->lost = 0;
  samples->part = part;
}

static bool is_worse(const brim_wrong_sample *a, const brim_wrong_sample *b)
{
  if (a->loss != b->loss) return a->loss > b->loss;
  return a->sample != b->sample ? a->sample < b->sample : a->position < b->position; /* equal samples: of tokens */
}

static bool belongs(const brim_samples *samples, const brim_wrong_sample *new)
{
  return samples->count < samples->limit || is_worse(new, &samples->worst[samples->count - 1]);
}

static void insert(brim_samples *samples, const brim_wrong_sample *new)
{
  int64_t at = samples->count;
  if (!belongs(samples, new)) return;
  if (at < samples->limit)
    samples->count++;
  else
    at--;
  for (; at > 0 && is_worse(new, &samples->worst[at - 1]); at--) samples->worst[at] = samples->worst[at - 1];
  samples->worst[at] = *new;
}

/* ---- answers ---- */

/* Returns the index of the first of the largest answers; -1 if an answer is not finite. */
static int64_t largest(uint32_t dtype, const void *answers, int64_t first, int64_t classes)
{
  int64_t best = 0;
  for (int64_t k = 0; k < classes; k++) {
    const double value = brim_value_at(dtype, answers, first + k);
    if (!isfinite(value)) return -1;
    if (value > brim_value_at(dtype, answers, first + best)) best = k;
  }
  return best;
}

/* Adds a sample with a class: computes the softmax of its answers. */
static void add_class(brim_samples *samples, const brim_setup *s, uint32_t dtype, int64_t i, int64_t sample,
                      int32_t label)
{
  const int64_t classes = s->answers, first = i * classes;
  const brim_loss_attr *loss = &s->loss.attr;
  if (label < 0 || label >= classes || (loss->ignores && label == loss->ignore_index)) return;
  const int64_t answer = largest(dtype, samples->answers, first, classes);
  samples->samples++;
  if (answer == label || answer < 0) return;
  const double most = brim_value_at(dtype, samples->answers, first + answer);
  double sum = 0;
  for (int64_t k = 0; k < classes; k++) sum += exp(brim_value_at(dtype, samples->answers, first + k) - most);
  const double difference = brim_value_at(dtype, samples->answers, first + label) - most;
  samples->wrong++;
  insert(samples, &(brim_wrong_sample){.sample = sample,
                                       .label = label,
                                       .answer = answer,
                                       .loss = log(sum) - difference,
                                       .label_probability = exp(difference) / sum,
                                       .answer_probability = 1 / sum});
}

static void add_values(brim_samples *samples, const brim_setup *s, uint32_t dtype, int64_t i, int64_t sample,
                       const void *labels)
{
  brim_wrong_sample new = {.sample = sample, .label = -1, .answer = -1};
  for (int64_t k = 0; k < s->answers; k++) {
    const double value = brim_value_at(dtype, samples->answers, i * s->answers + k),
                 target = brim_value_at(s->backend_ops->real, labels, i * s->answers + k);
    new.loss += (value - target) * (value - target) / (double)s->answers;
    if (k < BRIM_SAMPLE_VALUES_MAX) new.value[k] = value, new.target[k] = target;
  }
  samples->samples++;
  if (!isfinite(new.loss)) return;
  samples->wrong += new.loss > 0;
  insert(samples, &new);
}

/* Finds the model's answer for a token that belongs to the list. `row` has room for its logits. */
static brim_status find_answer(brim_exec *exec, const brim_program *program, int64_t i, int64_t classes, void *row,
                               brim_wrong_sample *new)
{
  const brim_tensor *answers = program->graph->kept_answers;
  if (answers->dtype == BRIM_DTYPE_I32) {
    int32_t rank = -1;
    BRIM_TRY(brim_exec_read_range(exec, program, answers, i, 1, &rank));
    new->label_rank = rank;
    return BRIM_OK;
  }
  BRIM_TRY(brim_exec_read_range(exec, program, answers, i * classes, classes, row));
  new->answer = largest(answers->dtype, row, 0, classes);
  return BRIM_OK;
}

/* Adds the tokens of a batch; `samples->answers` has their losses, followed by room for a row of logits. */
static brim_status add_tokens(brim_samples *samples, const brim_setup *s, brim_exec *exec, const brim_program *program,
                              const brim_batch *batch)
{
  const brim_tensor *kept = program->graph->kept;
  const int64_t each = s->data.elements, count = batch->span.count * each;
  const int32_t *labels = batch->labels;
  for (int64_t i = 0; i < count; i++) {
    brim_wrong_sample new = {.sample = batch->span.first + i / each,
                             .position = i % each,
                             .label = labels[i],
                             .answer = -1,
                             .label_rank = -1,
                             .loss = brim_value_at(kept->dtype, samples->answers, i)};
    if (labels[i] < 0 || labels[i] >= s->data.train.classes) continue; /* BRIM_NO_TOKEN */
    samples->samples++;
    if (!isfinite(new.loss) || !belongs(samples, &new)) continue;
    BRIM_TRY(find_answer(exec, program, i, s->data.train.classes, (char *)samples->answers + kept->bytes, &new));
    insert(samples, &new);
  }
  return BRIM_OK;
}

static bool has_room(brim_samples *samples, uint64_t bytes)
{
  if (bytes <= samples->answers_bytes) return true;
  free(samples->answers);
  samples->answers = brim_try_malloc(bytes);
  samples->answers_bytes = samples->answers ? bytes : 0;
  return samples->answers != NULL;
}

brim_status brim_samples_add(brim_samples *samples, const brim_setup *s, brim_exec *exec, const brim_program *program,
                             const brim_batch *batch)
{
  const brim_tensor *kept = program->graph->kept, *answers = program->graph->kept_answers;
  if (!kept) return BRIM_OK;
  const uint64_t row = answers ? (uint64_t)s->data.train.classes * brim_dtype_bytes(answers->dtype) : 0;
  if (!has_room(samples, kept->bytes + row)) { /* the evaluation itself continues */
    samples->lost++;
    return BRIM_OK;
  }
  BRIM_TRY(brim_exec_read(exec, program, kept, samples->answers));
  if (answers) return add_tokens(samples, s, exec, program, batch);
  for (int64_t i = 0; i < batch->span.count; i++) {
    if (s->data.train.task == BRIM_TASK_VALUES)
      add_values(samples, s, kept->dtype, i, batch->span.first + i, batch->labels);
    else
      add_class(samples, s, kept->dtype, i, batch->span.first + i, ((const int32_t *)batch->labels)[i]);
  }
  return BRIM_OK;
}

/* ---- ranks ---- */

typedef struct message {
  int64_t count, wrong, samples, lost;
  brim_wrong_sample worst[BRIM_SAMPLES_MAX];
} message;
_Static_assert(sizeof(message) <= BRIM_EXCHANGE_BYTES, "one exchange");

brim_status brim_samples_merge(brim_samples *samples, const brim_setup *s)
{
  if (!s->options.dist) return BRIM_OK;
  message own = {samples->count, samples->wrong, samples->samples, samples->lost, {{0}}};
  message *all = brim_xcalloc((size_t)s->world.ranks, sizeof *all);
  memcpy(own.worst, samples->worst, (size_t)own.count * sizeof own.worst[0]);
  const brim_status status = brim_dist_exchange(s->options.dist, &own, sizeof own, all);
  brim_samples_begin(samples, samples->part);
  for (int32_t r = 0; r < s->world.ranks && status == BRIM_OK; r++) {
    samples->wrong += all[r].wrong;
    samples->samples += all[r].samples;
    samples->lost += all[r].lost;
    for (int64_t i = 0; i < all[r].count; i++) insert(samples, &all[r].worst[i]);
  }
  free(all);
  return status;
}

/* ---- pictures ---- */

/* Returns a value of a sample as the dataset reads it: before normalisation, bytes as 0 to 1. */
static double raw_value(const brim_data *data, uint32_t real, const void *values, int64_t channel, int64_t i)
{
  const double scale = data->scale[channel * data->channel_step], shift = data->shift[channel * data->channel_step];
  const double value = brim_value_at(real, values, i);
  return scale != 0 ? (value - shift) / scale / data->unit : value;
}

static bool is_picture(const brim_data *data)
{
  const brim_shape *s = &data->sample;
  return s->rank == 3 && (s->dim[0] == 1 || s->dim[0] == 3) && s->dim[1] > 1 && s->dim[2] > 1;
}

/* Returns the mean of the pixels in [y0, y1) x [x0, x1). */
static double box(const brim_data *data, uint32_t real, const void *values, int64_t c, const int64_t y[2],
                  const int64_t x[2])
{
  const int64_t rows = data->sample.dim[1], columns = data->sample.dim[2];
  double sum = 0;
  for (int64_t i = y[0]; i < y[1]; i++)
    for (int64_t k = x[0]; k < x[1]; k++) sum += raw_value(data, real, values, c, (c * rows + i) * columns + k);
  return sum / (double)((y[1] - y[0]) * (x[1] - x[0]));
}

/* Converts values to bytes. Their range is 0 to 1 unless values exceed it. */
static brim_status add_picture(json_t *object, const brim_data *data, uint32_t real, const void *values)
{
  const int64_t channels = data->sample.dim[0], rows = data->sample.dim[1], columns = data->sample.dim[2];
  const int64_t side = rows > columns ? rows : columns,
                most = side < BRIM_SAMPLE_SIDE_MAX ? side : BRIM_SAMPLE_SIDE_MAX;
  const int64_t height = (rows * most + side - 1) / side, width = (columns * most + side - 1) / side;
  double *pixel = brim_try_malloc((size_t)(channels * height * width) * sizeof *pixel), low = 0, high = 1;
  uint8_t *bytes = brim_try_malloc((size_t)(channels * height * width));
  brim_text png = {0}, text = {0};
  brim_status status = pixel && bytes ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a picture");
  for (int64_t i = 0; i < height * width * channels && status == BRIM_OK; i++) {
    const int64_t c = i % channels, y = i / channels / width, x = i / channels % width;
    pixel[i] = box(data, real, values, c, (int64_t[]){y * rows / height, (y + 1) * rows / height},
                   (int64_t[]){x * columns / width, (x + 1) * columns / width});
    low = fmin(low, pixel[i]);
    high = fmax(high, pixel[i]);
  }
  const bool exceeds = low < -0.01 || high > 1.01; /* within these limits only rounding exceeds [0, 1] */
  for (int64_t i = 0; i < height * width * channels && status == BRIM_OK; i++) {
    const double share = exceeds ? (pixel[i] - low) / (high - low) : fmin(fmax(pixel[i], 0), 1);
    bytes[i] = (uint8_t)(255 * share + 0.5);
  }
  if (status == BRIM_OK) status = brim_png_add(&png, bytes, (uint32_t)height, (uint32_t)width, (uint32_t)channels);
  if (status == BRIM_OK) {
    brim_base64_add(&text, png.s, png.length);
    json_object_set_new(object, "picture", json_string(brim_text_str(&text)));
    json_object_set_new(object, "width", json_integer(width));
    json_object_set_new(object, "height", json_integer(height));
  }
  brim_text_release(&png);
  brim_text_release(&text);
  free(pixel);
  free(bytes);
  return status;
}

static void add_inputs(json_t *object, const brim_data *data, uint32_t real, const void *values)
{
  json_t *list = json_array();
  for (int64_t i = 0; i < data->elements && i < INPUTS_MAX; i++)
    json_array_append_new(list,
                          json_real(raw_value(data, real, values, data->channel_step ? i % data->channels : 0, i)));
  json_object_set_new(object, "inputs", list);
}

/* ---- text ---- */

/* Adds the texts of tokens together, because one may be only a part of a character. */
static brim_status add_text(const brim_data *data, const int32_t *token, int64_t count, brim_text *out)
{
  for (int64_t i = 0; i < count; i++) {
    const char *text = NULL;
    size_t bytes = 0;
    if (token[i] < 0) continue; /* BRIM_NO_TOKEN */
    BRIM_TRY(data->ops->decode(data->self, token[i], &text, &bytes));
    brim_text_add_n(out, text, bytes);
  }
  return BRIM_OK;
}

/* Sets a member to the first or (`end`) the last bytes of a text, cut to valid UTF-8. */
static void set_text(json_t *object, const char *key, const brim_text *text, bool end)
{
  const char *s = brim_text_str(text);
  const size_t length = text->length, most = length < TEXT_BYTES_MAX ? length : TEXT_BYTES_MAX;
  const char *from = end ? s + length - most : s, *to = from + most;
  brim_text valid = {0};
  if (end && most < length)
    while (from < to && ((unsigned char)*from & 0xc0) == 0x80) from++; /* skips the rest of a character that is cut */
  while (from < to) {
    size_t bytes;
    const char *shown = brim_utf8_take(&from, to, &bytes);
    if (*shown) brim_text_add_n(&valid, shown, bytes);
  }
  json_object_set_new(object, key, json_string(brim_text_str(&valid)));
  brim_text_release(&valid);
}

static brim_status set_token(json_t *object, const brim_data *data, const char *key, const char *name_key,
                             int64_t token)
{
  const int32_t one = (int32_t)token;
  brim_text text = {0};
  json_object_set_new(object, key, json_integer(token));
  const brim_status status =
      BRIM_HAS(brim_dataset_ops, data->ops, decode) ? add_text(data, &one, 1, &text) : BRIM_ENOTSUP;
  if (status == BRIM_OK) set_text(object, name_key, &text, false);
  brim_text_release(&text);
  return status == BRIM_ENOTSUP ? BRIM_OK : status;
}

/* Adds the text around label `at` of a sample, which is the token after values[at]. */
static brim_status set_surroundings(json_t *object, const brim_data *data, const int32_t *values, int64_t at)
{
  const int64_t first = at + 1 > TOKENS_BEFORE ? at + 1 - TOKENS_BEFORE : 0, rest = data->elements - at - 2;
  brim_text before = {0}, after = {0};
  if (!BRIM_HAS(brim_dataset_ops, data->ops, decode)) return BRIM_OK;
  brim_status status = add_text(data, values + first, at + 1 - first, &before);
  if (status == BRIM_OK && rest > 0)
    status = add_text(data, values + at + 2, rest < TOKENS_AFTER ? rest : TOKENS_AFTER, &after);
  if (status == BRIM_OK) {
    set_text(object, "before", &before, true);
    set_text(object, "after", &after, false);
  }
  brim_text_release(&before);
  brim_text_release(&after);
  return status == BRIM_ENOTSUP ? BRIM_OK : status;
}

static brim_status add_token(json_t *object, const brim_wrong_sample *w, const brim_data *data, const void *values)
{
  json_object_set_new(object, "position", json_integer(w->position));
  BRIM_TRY(set_token(object, data, "label", "label_name", w->label));
  if (w->answer >= 0) BRIM_TRY(set_token(object, data, "answer", "answer_name", w->answer));
  if (w->label_rank >= 0) json_object_set_new(object, "label_rank", json_integer(w->label_rank));
  return set_surroundings(object, data, values, w->position);
}

/* ---- the file ---- */

static void set_class(json_t *object, const brim_dataset_info *info, const char *key, const char *name_key,
                      int64_t class)
{
  json_object_set_new(object, key, json_integer(class));
  json_t *name = info->class_names ? json_string(info->class_names[class]) : NULL; /* NULL: not UTF-8 */
  if (name) json_object_set_new(object, name_key, name);
}

static json_t *list_of(const double *value, int64_t count)
{
  json_t *list = json_array();
  for (int64_t k = 0; k < count && k < BRIM_SAMPLE_VALUES_MAX; k++) json_array_append_new(list, json_real(value[k]));
  return list;
}

static json_t *describe(const brim_wrong_sample *w, const brim_setup *s, enum brim_part part)
{
  json_t *object = json_object();
  json_object_set_new(object, "index", json_integer(brim_data_index(&s->data, part, 0, w->sample)));
  if (s->data.train.task == BRIM_TASK_TOKENS) {
    /* add_token describes it */
  } else if (w->label < 0) {
    json_object_set_new(object, "label", list_of(w->target, s->answers));
    json_object_set_new(object, "answer", list_of(w->value, s->answers));
  } else {
    set_class(object, &s->data.train, "label", "label_name", w->label);
    set_class(object, &s->data.train, "answer", "answer_name", w->answer);
    json_object_set_new(object, "answer_probability", json_real(w->answer_probability));
    json_object_set_new(object, "label_probability", json_real(w->label_probability));
  }
  json_object_set_new(object, "loss", json_real(w->loss));
  return object;
}

static brim_status add_sample(json_t *list, const brim_samples *samples, const brim_setup *s, int64_t i, void *scratch,
                              void *values, void *label)
{
  const brim_data *data = &s->data;
  const uint32_t real = s->backend_ops->real;
  json_t *object = describe(&samples->worst[i], s, samples->part);
  json_array_append_new(list, object);
  BRIM_TRY(brim_data_sample(data, samples->part, 0, samples->worst[i].sample, real, scratch, values, label));
  if (data->train.task == BRIM_TASK_TOKENS) return add_token(object, &samples->worst[i], data, values);
  if (is_picture(data)) return add_picture(object, data, real, values);
  add_inputs(object, data, real, values);
  return BRIM_OK;
}

static brim_status add_list(json_t *list, const brim_samples *samples, const brim_setup *s)
{
  const uint32_t real = s->backend_ops->real;
  void *scratch = brim_try_malloc(s->data.scratch_bytes),
       *values = brim_try_malloc(brim_data_values_bytes(&s->data, real)),
       *label = brim_try_malloc(brim_data_label_bytes(&s->data, samples->part, real));
  brim_status status =
      scratch && values && label ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a sample");
  for (int64_t i = 0; i < samples->count && status == BRIM_OK; i++)
    status = add_sample(list, samples, s, i, scratch, values, label);
  free(scratch);
  free(values);
  free(label);
  return status;
}

brim_status brim_samples_write(const brim_samples *samples, const brim_setup *s, const char *dir, int64_t step,
                               json_t **out)
{
  char path[BRIM_PATH_MAX];
  json_t *list = json_array();
  brim_status status = brim_path_join(path, dir, BRIM_SAMPLES_NAME);
  if (status == BRIM_OK && samples->lost > 0)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the answers of a batch");
  if (status == BRIM_OK) status = add_list(list, samples, s);
  const int32_t task = s->data.train.task;
  json_t *root =
      json_pack("{s:I, s:s, s:s, s:I}", "step", (json_int_t)step, "split", brim_part_names[samples->part], "task",
                task == BRIM_TASK_VALUES   ? "values"
                : task == BRIM_TASK_TOKENS ? "tokens"
                                           : "class",
                "samples", (json_int_t)samples->samples);
  if (task != BRIM_TASK_TOKENS) json_object_set_new(root, "wrong", json_integer(samples->wrong));
  json_object_set_new(root, "worst", list);
  char *text = status == BRIM_OK ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  if (status == BRIM_OK && !text) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the list of samples");
  if (status == BRIM_OK) status = brim_file_write_atomic(path, text, strlen(text));
  free(text);
  *out = status == BRIM_OK ? root : NULL;
  if (status != BRIM_OK) json_decref(root);
  return status;
}

void brim_samples_release(brim_samples *samples)
{
  free(samples->answers);
  samples->answers = NULL;
  samples->answers_bytes = 0;
}
