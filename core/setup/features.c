/* See features.h. The file of features is an internal dataset that replaces the configured one; loader, order and plans
 * treat it like any other dataset. */
#include "setup/features.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "data/transform.h"
#include "data/transform_check.h"
#include "setup/setup_parts.h"

bool brim_features_find(brim_feature_set *set, const char *path)
{
  const brim_feature_shape shape = set->file.shape;
  return brim_feature_file_open(path, &shape, &set->file);
}

void brim_features_close(brim_feature_set *set)
{
  if (!set) return;
  brim_feature_file_close(&set->file);
  brim_setup_weights_close(&set->frozen);
  free(set);
}

/* ---- the dataset ---- */

static const brim_dataset_info *info_of(const brim_feature_set *set, const char *split)
{
  return strcmp(split, "test") == 0 ? &set->test : &set->train;
}

static brim_status describe_features(const void *self, const char *split, brim_dataset_info *out)
{
  *out = *info_of(self, split);
  return out->count > 0 ? BRIM_OK : BRIM_ENOTSUP;
}

/* A plan needs only the number of features and does not compute them, so they cannot be read then, for example for
 * timing. */
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
                                            .help = "features that a frozen backbone computes from another dataset",
                                            .ops = &features_ops};

static void describe_as(brim_dataset_info *out, const brim_dataset_info *raw, int64_t values)
{
  *out = *raw;
  out->sample = (brim_shape){1, {values}};
  out->dtype = BRIM_DTYPE_F32;
  out->pixels_max = out->side_max = 0;
}

/* Makes the features the data of the setup. */
static brim_status take_place(brim_setup *s, brim_feature_set *set)
{
  describe_as(&set->train, &s->data.train, set->file.shape.values);
  describe_as(&set->test, &s->data.test, set->file.shape.values);
  set->settings = set->raw_settings;
  set->settings.dataset.mean = set->settings.dataset.std = (brim_list){0};
  set->settings.transform = (brim_transform_settings){0};
  set->raw = *s;
  set->raw.distribution = (brim_distribution){0}; /* the distribution belongs to the setup, and so do its arrays */
  set->raw.arena = (brim_arena){0};
  s->features = set;
  return brim_data_describe(&s->data, &features_plugin, set, &set->settings);
}

/* ---- the key of a file ---- */

static _Thread_local uint64_t files_hash; /* nftw passes no context to its callback */
static _Thread_local size_t files_root;

/* Adds the file to a sum, so that the order of files does not matter. Includes the time of the last status change,
 * which, unlike the modification time, programs cannot set; and the path below the folder, which may name the class. */
static int add_file(const char *path, const struct stat *info, int kind, struct FTW *at)
{
  const int64_t of[] = {info->st_size, info->st_mtim.tv_sec, info->st_mtim.tv_nsec, info->st_ctim.tv_sec,
                        info->st_ctim.tv_nsec};
  const char *name = path + files_root;
  (void)at;
  if (kind == FTW_F) files_hash += brim_hash(brim_hash(BRIM_HASH_START, name, strlen(name)), of, sizeof of);
  return 0;
}

static const char *text_of(const brim_config_choice *choice, const brim_param *p)
{
  const char *const *text = (const void *)((const char *)choice->params + p->offset);
  return *text;
}

/* Adds the files that a parameter names: as a path, or as a text that leads out of the dataset's folder, as names of
 * single files may. */
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
  files_hash = 0;
  files_root = strlen(path);
  (void)nftw(path, add_file, 32, 0); /* missing files were reported when the dataset was read */
  brim_text_printf(key, "%s %016llx\n", p->key, (unsigned long long)files_hash);
}

/* Adds a plugin to the hash: all its parameters, and its file. */
static brim_status add_choice(const brim_setup *s, const brim_config_choice *choice, brim_text *key)
{
  uint64_t bytes = 0, hash = 0;
  if (choice->file[0]) BRIM_TRY(brim_file_hash(choice->file, &bytes, &hash));
  brim_text_printf(key, "%s %016llx\n", choice->group, (unsigned long long)hash);
  brim_yaml_print(brim_yaml_get(s->config->root, choice->group), key, false);
  for (const brim_param *p = choice->plugin->params; p && p->key; p++)
    if (p->type == BRIM_PATH || p->type == BRIM_STR) add_files(choice, p, key);
  return BRIM_OK;
}

static brim_status find_key(const brim_setup *s, uint64_t weights, uint64_t *out)
{
  const brim_training_settings *t = &s->settings->training;
  brim_text key = {0};
  brim_status status = add_choice(s, brim_config_backbone(s->config), &key);
  if (status == BRIM_OK) status = add_choice(s, brim_config_choice_of(s->config, "dataset"), &key);
  if (status == BRIM_OK) status = add_choice(s, brim_config_choice_of(s->config, "backend"), &key);
  brim_yaml_print(brim_yaml_get(s->config->root, "transform"), &key, false);
  brim_text_printf(&key, "version %d weights %016llx precision %d grain %lld\n", BRIM_TRANSFORM_VERSION,
                   (unsigned long long)weights, (int)brim_setup_precision(s), (long long)s->grain);
  if (t->num_train_samples > 0) /* the other samples are holes */
    brim_text_printf(&key, "of %lld seed %lld\n", (long long)t->num_train_samples, (long long)s->settings->seed);
  *out = brim_hash(BRIM_HASH_START, brim_text_str(&key), key.length);
  brim_text_release(&key);
  return status;
}

/* ---- opening ---- */

/* Features are computed from samples that are not augmented: removes the configuration's augmentation, and says so. */
static brim_status leave_out_augmentation(brim_setup *s, brim_feature_set *set)
{
  const char *model = brim_config_choice_of(s->config, "model")->plugin->id;
  char mixing[96];
  if (brim_settings_mix(s->settings))
    return brim_fail(BRIM_ECONFIG,
                     "%s cannot be used with model=%s, which keeps features of single samples\nset %s, or model=lora",
                     brim_settings_mixing(s->settings, mixing, sizeof mixing), model,
                     s->settings->augment.mixup > 0 ? "augment.mixup=0" : "augmentation=[]");
  set->raw_settings = *s->settings;
  if (brim_transform_augments(s->settings) && s->options.read_data)
    brim_log(
        BRIM_LOG_INFO,
        "features are computed from unaugmented samples: augment has no effect with model=%s (it has with model=lora)",
        model);
  set->raw_settings.augment = (brim_augment_settings){0};
  s->data.settings = s->data.transform.settings = &set->raw_settings;
  return BRIM_OK;
}

/* Checks the data: only features of samples with one class each are supported. */
static brim_status check_data(const brim_setup *s)
{
  const char *model = brim_config_choice_of(s->config, "model")->plugin->id, *dataset = s->data.plugin->id;
  if (s->data.train.task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG,
                     "model=%s trains a new last layer on features of samples with one class each; samples of dataset "
                     "'%s' are tokens, for which language models already have a last layer\nuse model=lora to "
                     "fine-tune such a model (backbone=gpt2)",
                     model, dataset);
  if (s->data.train.task != BRIM_TASK_CLASS)
    return brim_fail(BRIM_ECONFIG, "model=%s needs samples with one class each, which dataset '%s' does not have",
                     model, dataset);
  if (s->data.validation.count == 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "model=%s keeps features of two splits, but dataset '%s' has its own validation data\nleave that "
                   "data out, and set dataset.validation_fraction",
                   model, dataset);
}

/* Finds the number of values per sample and, if needed, the hashes of the inputs. */
static brim_status find_shape(const brim_setup *s, brim_feature_set *set)
{
  brim_graph *g = NULL;
  char text[96];
  brim_feature_shape *shape = &set->file.shape;
  brim_graph_options options = brim_setup_graph_options(s, brim_setup_precision(s));
  options.batch = 1;
  options.keep_features = true;
  BRIM_TRY(brim_graph_build(&options, &g));
  const brim_tensor *features = g->kept;
  brim_status status = BRIM_OK;
  if (features->shape.rank != 2)
    status =
        brim_fail(BRIM_ECONFIG, "model=%s needs features [N, F], backbone '%s' has %s",
                  brim_config_choice_of(s->config, "model")->plugin->id, brim_config_backbone(s->config)->plugin->id,
                  brim_shape_format(text, sizeof text, &features->shape));
  *shape = (brim_feature_shape){.values = features->shape.dim[features->shape.rank - 1],
                                .count = {s->data.train.count, s->data.test.count}};
  if (status == BRIM_OK) status = brim_setup_weights_open(s, g, &set->frozen);
  if (status == BRIM_OK && s->options.read_data) status = brim_frozen_read(s, g, NULL, &set->weights);
  brim_graph_free(g);
  shape->weights = set->weights;
  return status == BRIM_OK && s->options.read_data ? find_key(s, set->weights, &shape->key) : status;
}

brim_status brim_features_open(brim_setup *s)
{
  const brim_model_ops *ops = brim_config_choice_of(s->config, "model")->plugin->ops;
  if (!brim_config_backbone(s->config) || ops->wraps != BRIM_WRAPS_FEATURES || s->options.whole) return BRIM_OK;
  char path[BRIM_PATH_MAX];
  brim_feature_set *set = brim_xcalloc(1, sizeof *set);
  brim_status status = leave_out_augmentation(s, set);
  if (status == BRIM_OK) status = check_data(s);
  if (status == BRIM_OK) status = find_shape(s, set);
  if (status == BRIM_OK && s->options.read_data) status = brim_feature_file_path(set->file.shape.key, path);
  if (status == BRIM_OK && s->options.read_data && brim_features_find(set, path))
    brim_log(BRIM_LOG_INFO, "features: using '%s'", path);
  if (status == BRIM_OK) return take_place(s, set); /* the setup owns it from here on */
  s->data.settings = s->data.transform.settings = s->settings;
  brim_features_close(set);
  return status;
}
