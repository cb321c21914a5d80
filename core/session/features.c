/* See features.h. The file of features is a data set of the core's own, in whose place the session's data then comes:
 * loader, order and plans go on as with any other. */
#include "session/features.h"

#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/transform.h"
#include "data/transform_check.h"
#include "exec/exec.h"
#include "session/frozen.h"
#include "session/placement.h"
#include "session/session_parts.h"
#include "store/feature_file.h"

#define TOLD_SECONDS 10 /* between lines that say how far it is */

struct brim_feature_set {
  brim_feature_file file; /* not mapped where only plans are made */
  brim_dataset_info train, test;
  brim_settings settings; /* the session's, without augmentation; in the end also without what prepares raw samples */
  brim_session_weights frozen;
  uint64_t weights, peak_bytes;
};

uint64_t brim_features_weights(const brim_feature_set *set)
{
  return set->weights;
}
const brim_session_weights *brim_features_frozen(const brim_feature_set *set)
{
  return &set->frozen;
}
uint64_t brim_features_peak(const brim_feature_set *set)
{
  return set->peak_bytes;
}

void brim_features_close(brim_feature_set *set)
{
  if (!set) return;
  brim_feature_file_close(&set->file);
  brim_session_weights_close(&set->frozen);
  free(set);
}

/* ---- as a data set ---- */

static const brim_dataset_info *info_of(const brim_feature_set *set, const char *split)
{
  return strcmp(split, "test") == 0 ? &set->test : &set->train;
}

static brim_status describe_features(const void *self, const char *split, brim_dataset_info *out)
{
  *out = *info_of(self, split);
  return out->count > 0 ? BRIM_OK : BRIM_ENOTSUP;
}

/* A plan knows how many features there are, and computes none: they cannot be read there, as for timing. */
static brim_status open_features(void *self, const char *split)
{
  const brim_feature_set *set = self;
  if (info_of(set, split)->count == 0) return BRIM_ENOTSUP;
  return set->file.map ? BRIM_OK : brim_fail(BRIM_ENOTSUP, "features are computed when a run begins");
}

static brim_status read_features(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const brim_feature_set *set = self;
  const enum brim_feature_split which = strcmp(split, "test") == 0 ? BRIM_FEATURES_TEST : BRIM_FEATURES_TRAIN;
  const float *row = brim_feature_file_sample(&set->file, which, index, label);
  memcpy(values, row, sizeof *row * (size_t)set->file.shape.values);
  return BRIM_OK;
}

static brim_status features_bytes(const void *self, const char *split, uint64_t *out)
{
  const brim_feature_set *set = self;
  *out = (uint64_t)info_of(set, split)->count * (sizeof(int32_t) + sizeof(float) * (uint64_t)set->file.shape.values);
  return BRIM_OK;
}

static const brim_dataset_ops features_ops = {.size = sizeof features_ops,
                                              .open = open_features,
                                              .describe = describe_features,
                                              .read = read_features,
                                              .host_bytes = features_bytes};
static const brim_plugin features_plugin = {.size = sizeof features_plugin,
                                            .kind = BRIM_DATASET,
                                            .id = "features",
                                            .help = "what a frozen backbone makes of another data set",
                                            .ops = &features_ops};

static void describe_as(brim_dataset_info *out, const brim_dataset_info *raw, int64_t values)
{
  *out = *raw;
  out->sample = (brim_shape){1, {values}};
  out->dtype = BRIM_DTYPE_F32;
  out->pixels_max = out->side_max = 0;
}

/* The session's data is the features from here on. */
static brim_status take_place(brim_session *s, brim_feature_set *set)
{
  describe_as(&set->train, &s->data.train, set->file.shape.values);
  describe_as(&set->test, &s->data.test, set->file.shape.values);
  set->settings.dataset.mean = set->settings.dataset.std = (brim_list){0};
  set->settings.transform = (brim_transform_settings){0};
  s->features = set;
  s->started = s->opening = false;
  BRIM_TRY(brim_data_describe(&s->data, &features_plugin, set, &set->settings));
  return brim_session_follow_data(s);
}

/* ---- what a file belongs to ---- */

static _Thread_local uint64_t files_hash; /* nftw has no argument for these */
static _Thread_local size_t files_root;

/* Added up, as files come in any order. With the time of the last change, which unlike that of the last write no
 * program can set back. By their place below the folder, which may say of which class they are. */
static int add_file(const char *path, const struct stat *info, int kind, struct FTW *at)
{
  const int64_t of[] = {info->st_size, info->st_mtim.tv_sec, info->st_mtim.tv_nsec, info->st_ctim.tv_sec,
                        info->st_ctim.tv_nsec};
  const char *name = path + files_root;
  (void)at;
  if (kind == FTW_F) files_hash += brim_hash(brim_hash(BRIM_HASH_START, name, strlen(name)), of, sizeof of);
  return 0;
}

static uint64_t hash_files(const char *path)
{
  files_hash = 0;
  files_root = strlen(path);
  (void)nftw(path, add_file, 32, 0); /* what is not there, reading the data set has told */
  return files_hash;
}

static const char *text_of(const brim_config_choice *choice, const brim_param *p)
{
  const char *const *text = (const void *)((const char *)choice->params + p->offset);
  return *text;
}

/* The files that a parameter names: as a path, or as text that leads out of the path that the others lie below, as the
 * names of single files may. */
static void add_files(const brim_config_choice *choice, const brim_param *p, brim_text *key)
{
  char path[BRIM_PATH_MAX];
  const char *text = text_of(choice, p), *folder = "";
  for (const brim_param *q = choice->plugin->params; q->key; q++)
    if (q->type == BRIM_PATH && strcmp(q->key, "path") == 0) folder = text_of(choice, q);
  if (p->type == BRIM_STR && text[0] != '/' && !strstr(text, "..")) return;
  if (p->type == BRIM_PATH || text[0] == '/')
    snprintf(path, sizeof path, "%s", text);
  else
    snprintf(path, sizeof path, "%s/%s", folder, text);
  brim_text_printf(key, "%s %016llx\n", p->key, (unsigned long long)hash_files(path));
}

/* A plugin with all its parameters, and its file. */
static brim_status add_choice(const brim_session *s, const brim_config_choice *choice, brim_text *key)
{
  uint64_t bytes = 0, hash = 0;
  if (choice->file[0]) BRIM_TRY(brim_file_hash(choice->file, &bytes, &hash));
  brim_text_printf(key, "%s %016llx\n", choice->group, (unsigned long long)hash);
  brim_yaml_print(brim_yaml_get(s->config->root, choice->group), key, false);
  for (const brim_param *p = choice->plugin->params; p && p->key; p++)
    if (p->type == BRIM_PATH || p->type == BRIM_STR) add_files(choice, p, key);
  return BRIM_OK;
}

static brim_status find_key(const brim_session *s, uint64_t weights, uint64_t *out)
{
  const brim_training_settings *t = &s->settings->training;
  brim_text key = {0};
  brim_status status = add_choice(s, brim_config_backbone(s->config), &key);
  if (status == BRIM_OK) status = add_choice(s, brim_config_choice_of(s->config, "dataset"), &key);
  if (status == BRIM_OK) status = add_choice(s, brim_config_choice_of(s->config, "backend"), &key);
  brim_yaml_print(brim_yaml_get(s->config->root, "transform"), &key, false);
  brim_text_printf(&key, "version %d weights %016llx precision %d grain %lld\n", BRIM_TRANSFORM_VERSION,
                   (unsigned long long)weights, (int)s->choice.precision, (long long)s->grain);
  if (t->num_train_samples > 0) /* the others are holes */
    brim_text_printf(&key, "of %lld seed %lld\n", (long long)t->num_train_samples, (long long)s->settings->seed);
  *out = brim_hash(BRIM_HASH_START, brim_text_str(&key), key.length);
  brim_text_release(&key);
  return status;
}

/* ---- computing ---- */

typedef struct extraction {
  brim_session *session;
  brim_plan *plan;
  brim_exec *exec;
  const brim_program *program;
  brim_feature_writer *writer;
  int64_t batch, done, total;
  double told;
  void *values, *kept; /* [batch, elements]; the features as the backend has them */
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
                index = brim_data_index(&x->session->data, span->part, 0, span->first + i);
  const enum brim_feature_split split = span->part == BRIM_PART_TEST ? BRIM_FEATURES_TEST : BRIM_FEATURES_TRAIN;
  for (int64_t f = 0; f < width; f++) {
    x->row[f] = (float)brim_value_at(x->program->graph->kept->dtype, x->kept, i * width + f);
    if (!isfinite(x->row[f]))
      return brim_fail(BRIM_ENUMERIC, "the backbone's features of sample %lld are not finite", (long long)index);
  }
  return brim_feature_writer_put(x->writer, split, index, x->row, x->labels[i]);
}

static void tell_progress(extraction *x)
{
  if (brim_now() - x->told < TOLD_SECONDS) return;
  x->told = brim_now();
  brim_log(BRIM_LOG_INFO, "features: %lld of %lld samples", (long long)x->done, (long long)x->total);
}

/* The last batch is filled up with what was there before; what comes out of that is not kept. */
static brim_status compute_batch(extraction *x, const brim_batch *batch)
{
  const brim_data *data = &x->session->data;
  const brim_step step = {.loss_scale = 1};
  const size_t count = (size_t)batch->span.count;
  memcpy(x->values, batch->values, count * (size_t)data->elements * brim_dtype_bytes(x->session->backend_ops->real));
  memcpy(x->labels, batch->labels, count * sizeof *x->labels);
  BRIM_TRY(brim_exec_load(x->exec, x->program, x->values, x->labels));
  BRIM_TRY(brim_exec_run(x->exec, x->program, &step));
  BRIM_TRY(brim_exec_read(x->exec, x->program, x->program->graph->kept, x->kept));
  for (int64_t i = 0; i < batch->span.count; i++) BRIM_TRY(keep_row(x, &batch->span, i));
  x->done += batch->span.count;
  tell_progress(x);
  return BRIM_OK;
}

static brim_status compute_batches(extraction *x, brim_loader *loader)
{
  const volatile int *stop = x->session->options.stop;
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
  stream spans = {part, x->session->data.count[part], x->batch};
  const int32_t threads = (int32_t)x->session->settings->training.num_workers;
  const brim_loader_options options = {.data = &x->session->data,
                                       .part = part,
                                       .batch_max = x->batch,
                                       .real = x->session->backend_ops->real,
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
  BRIM_TRY(brim_frozen_write(x->session, x->exec, x->program, &hash));
  BRIM_TRY(brim_session_finish_data(x->session));
  for (int part = BRIM_PART_TRAIN; part <= BRIM_PART_TEST; part++)
    if (x->session->data.count[part] > 0) BRIM_TRY(compute_part(x, (enum brim_part)part));
  return BRIM_OK;
}

/* On the session's device, in a plan of evaluation, whose memory is given back. */
static brim_status compute(extraction *x)
{
  brim_session *s = x->session;
  const brim_placement_wish wish = {x->batch, x->batch, false};
  s->extracts = true;
  brim_status status = brim_placement_open(s, &wish, &x->plan, &x->exec);
  s->extracts = false;
  if (status == BRIM_OK) {
    x->program = brim_plan_program(x->plan, BRIM_PROGRAM_EVALUATE, x->batch);
    status = compute_all(x);
    brim_exec_close(x->exec);
    brim_plan_free(x->plan);
  }
  free(x->values);
  free(x->labels);
  free(x->kept);
  free(x->row);
  return status;
}

static brim_status fill_file(brim_session *s, brim_feature_writer *w)
{
  const int64_t *count = s->data.count;
  const int64_t total = count[BRIM_PART_TRAIN] + count[BRIM_PART_VALIDATION] + count[BRIM_PART_TEST];
  extraction x = {.session = s, .writer = w, .total = total, .told = brim_now()};
  const double start = brim_now();
  x.batch = s->eval_batch < total ? s->eval_batch : total;
  brim_log(BRIM_LOG_INFO, "features: computing those of %lld samples once, %lld numbers each", (long long)total,
           (long long)w->shape.values);
  BRIM_TRY(compute(&x));
  BRIM_TRY(brim_feature_writer_close(w));
  brim_log(BRIM_LOG_INFO, "features: computed in %.1f s, kept in %s for the next runs", brim_now() - start, w->path);
  return BRIM_OK;
}

/* Ranks of a host and other runs wait for the one that computes. */
static brim_status make_alone(brim_session *s, brim_feature_set *set, const char *path)
{
  const brim_feature_shape shape = set->file.shape;
  brim_feature_writer writer;
  BRIM_TRY(brim_feature_writer_open(&writer, path, &shape, s->options.stop));
  brim_status status = BRIM_OK;
  if (!brim_feature_file_open(path, &shape, &set->file)) {
    status = fill_file(s, &writer);
    if (status == BRIM_OK && !brim_feature_file_open(path, &shape, &set->file))
      status = brim_fail(BRIM_EIO, "'%s' cannot be read back", path);
  }
  brim_feature_writer_cancel(&writer);
  return status;
}

static brim_status make_or_find(brim_session *s, brim_feature_set *set)
{
  char path[BRIM_PATH_MAX];
  const brim_feature_shape shape = set->file.shape;
  BRIM_TRY(brim_feature_file_path(shape.key, path));
  if (!brim_feature_file_open(path, &shape, &set->file)) return make_alone(s, set, path);
  brim_log(BRIM_LOG_INFO, "features: taken from %s", path);
  return BRIM_OK;
}

/* ---- the session ---- */

/* Features are of samples as they are: whatever else the configuration would do to them is left out, and said to be. */
static brim_status leave_out_augmentation(brim_session *s, brim_feature_set *set)
{
  const char *model = brim_config_choice_of(s->config, "model")->plugin->id;
  if (s->settings->augment.mixup > 0)
    return brim_fail(BRIM_ECONFIG,
                     "augment.mixup=%g does not go with model=%s, which keeps features of single samples\n"
                     "take augment.mixup=0, or model=lora",
                     s->settings->augment.mixup, model);
  set->settings = *s->settings;
  brim_augment_settings *a = &set->settings.augment;
  if (brim_transform_augments(s->settings) && s->options.read_data)
    brim_log(BRIM_LOG_INFO,
             "features are of samples as they are: augment means nothing to model=%s (model=lora has it)", model);
  *a = (brim_augment_settings){0};
  s->data.settings = s->data.transform.settings = &set->settings;
  return BRIM_OK;
}

static brim_status refuse_task(const brim_session *s)
{
  const char *model = brim_config_choice_of(s->config, "model")->plugin->id, *dataset = s->data.plugin->id;
  if (s->data.train.task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG,
                     "model=%s puts a new last layer on features of samples that have a class each; samples of dataset "
                     "'%s' are tokens, each answered with the next one, and language models have the last layer for "
                     "that\nmodel=lora trains changes of such a model (backbone=gpt2)",
                     model, dataset);
  return brim_fail(BRIM_ECONFIG,
                   "model=%s keeps features of samples that have a class each, and dataset '%s' has others", model,
                   dataset);
}

/* How many numbers a sample has, and, where they are needed, the hashes of what makes them. */
static brim_status find_shape(const brim_session *s, brim_feature_set *set)
{
  if (s->data.train.task != BRIM_TASK_CLASS) return refuse_task(s);
  if (s->data.validation.count > 0)
    return brim_fail(BRIM_ECONFIG,
                     "model=%s keeps features of two splits, and dataset '%s' has validation data of its own\n"
                     "leave them out, and set dataset.validation_fraction",
                     brim_config_choice_of(s->config, "model")->plugin->id, s->data.plugin->id);
  brim_graph *g = NULL;
  char text[96];
  brim_feature_shape *shape = &set->file.shape;
  BRIM_TRY(brim_session_graph(s, 1, &g));
  const brim_tensor *features = g->kept;
  brim_status status = BRIM_OK;
  if (features->shape.rank != 2)
    status =
        brim_fail(BRIM_ECONFIG, "model=%s needs features [N, F], backbone '%s' has %s",
                  brim_config_choice_of(s->config, "model")->plugin->id, brim_config_backbone(s->config)->plugin->id,
                  brim_shape_format(text, sizeof text, &features->shape));
  *shape = (brim_feature_shape){.values = features->shape.dim[features->shape.rank - 1],
                                .count = {s->data.train.count, s->data.test.count}};
  if (status == BRIM_OK) status = brim_session_weights_open(s, g, &set->frozen);
  if (status == BRIM_OK && s->options.read_data) status = brim_frozen_read(s, g, NULL, &set->weights);
  brim_graph_free(g);
  shape->weights = set->weights;
  return status == BRIM_OK && s->options.read_data ? find_key(s, set->weights, &shape->key) : status;
}

/* What computing takes, for `brim plan`. */
static brim_status find_peak(brim_session *s, brim_feature_set *set)
{
  brim_plan *plan = NULL;
  s->extracts = true;
  const brim_status status = brim_session_plan_evaluation(s, s->eval_batch, s->eval_batch, false, &plan);
  s->extracts = false;
  if (status == BRIM_OK) set->peak_bytes = plan->peak_bytes;
  brim_plan_free(plan);
  return status;
}

static brim_status open_set(brim_session *s, brim_feature_set *set)
{
  s->extracts = true;
  const brim_status status = find_shape(s, set);
  s->extracts = false;
  BRIM_TRY(status);
  return s->options.read_data ? make_or_find(s, set) : find_peak(s, set);
}

brim_status brim_features_open(brim_session *s)
{
  const brim_model_ops *ops = brim_config_choice_of(s->config, "model")->plugin->ops;
  if (!brim_config_backbone(s->config) || ops->wraps != BRIM_WRAPS_FEATURES || s->options.whole) return BRIM_OK;
  brim_feature_set *set = brim_xcalloc(1, sizeof *set);
  brim_status status = leave_out_augmentation(s, set);
  if (status == BRIM_OK) status = open_set(s, set);
  if (status == BRIM_OK) return take_place(s, set); /* the session's from here on */
  s->data.settings = s->data.transform.settings = s->settings;
  brim_features_close(set);
  return status;
}
