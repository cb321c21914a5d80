/* Converts descriptions of data to JSON and back. */
#include "data/keep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/describe.h"

#define CLASSES_MAX INT32_MAX

static const char *const task_names[] = {
    [BRIM_TASK_CLASS] = "class", [BRIM_TASK_TOKENS] = "tokens", [BRIM_TASK_VALUES] = "values"};
#define TASKS ((int32_t)(sizeof task_names / sizeof task_names[0]))

/* ---- writing ---- */

static json_t *json_of_shape(const brim_shape *shape)
{
  json_t *out = json_array();
  for (int32_t i = 0; i < shape->rank; i++) json_array_append_new(out, json_integer(shape->dim[i]));
  return out;
}

static json_t *json_of_list(const brim_list *list, double otherwise)
{
  json_t *out = json_array();
  if (list->count == 0) json_array_append_new(out, json_real(otherwise));
  for (size_t i = 0; i < list->count; i++) json_array_append_new(out, json_real(list->item[i]));
  return out;
}

static json_t *json_of_transform(const brim_transform *t)
{
  if (!t->applies) return json_null();
  return json_pack("{s:I, s:[I, I], s:s}", "resize", (json_int_t)t->settings->transform.resize, "size",
                   (json_int_t)t->rows, (json_int_t)t->columns, "interpolation", brim_transform_filter(t));
}

static json_t *json_of_inputs(const brim_data *data)
{
  if (data->train.task == BRIM_TASK_TOKENS) return json_pack("{s:o}", "shape", json_of_shape(&data->sample));
  return json_pack("{s:o, s:f, s:o, s:o, s:o}", "shape", json_of_shape(&data->sample), "divided_by", data->unit, "mean",
                   json_of_list(&data->mean, 0), "std", json_of_list(&data->deviation, 1), "transform",
                   json_of_transform(&data->transform));
}

/* Returns the class names as JSON; null if one is not UTF-8, as the name of a folder may be. */
static json_t *json_of_names(const brim_dataset_info *info)
{
  if (!info->class_names) return json_null();
  json_t *out = json_array();
  for (int64_t i = 0; i < info->classes; i++)
    if (json_array_append_new(out, json_string(info->class_names[i])) != 0) {
      brim_log(BRIM_LOG_WARN, "the name of class %" PRId64 " is not UTF-8: the run stores no names of classes", i);
      json_decref(out);
      return json_null();
    }
  return out;
}

/* Gets the data that the dataset itself stores, as JSON; null if it stores nothing. */
static brim_status keep_own(const brim_data *data, json_t **out)
{
  const char *text = NULL;
  json_error_t problem;
  *out = json_null();
  if (!BRIM_HAS(brim_dataset_ops, data->ops, keep)) return BRIM_OK;
  BRIM_TRY(data->ops->keep(data->self, &text));
  if (!text) return BRIM_OK;
  *out = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
  return *out ? BRIM_OK
              : brim_fail(BRIM_EINTERNAL, "the data that dataset '%s' stores with a run is not JSON: %s",
                          data->plugin->id, problem.text);
}

brim_status brim_data_keep(const brim_data *data, json_t **out)
{
  const brim_dataset_info *info = &data->train;
  json_t *own = NULL;
  BRIM_TRY(keep_own(data, &own));
  json_t *samples = json_pack("{s:I, s:I, s:I}", "train", (json_int_t)info->count, "validation",
                              (json_int_t)data->validation.count, "test", (json_int_t)data->test.count);
  *out =
      json_pack("{s:s, s:s, s:o, s:s, s:I, s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o}", "dataset", data->plugin->id,
                "task", task_names[info->task], "sample", json_of_shape(&info->sample), "dtype",
                brim_dtype_name(info->dtype), "classes", (json_int_t)info->classes, "class_names", json_of_names(info),
                "targets", (json_int_t)info->targets, "pixels_max", (json_int_t)info->pixels_max, "side_max",
                (json_int_t)info->side_max, "samples", samples, "trained", (json_int_t)data->count[BRIM_PART_TRAIN],
                "seed", (json_int_t)data->seed, "inputs", json_of_inputs(data), "kept", own);
  if (*out && info->documents) json_object_set_new(*out, "documents", json_true());
  return *out ? BRIM_OK : brim_fail(BRIM_EINTERNAL, "the data stored for dataset '%s' is not JSON", data->plugin->id);
}

/* ---- reading ---- */

bool brim_data_is_kept_of(const json_t *kept, const brim_plugin *plugin)
{
  const char *id = json_string_value(json_object_get(kept, "dataset"));
  return id && strcmp(id, plugin->id) == 0;
}

static bool read_shape(const json_t *from, brim_shape *out)
{
  const size_t rank = json_array_size(from);
  if (!json_is_array(from) || rank > sizeof out->dim / sizeof out->dim[0]) return false;
  *out = (brim_shape){.rank = (int32_t)rank};
  for (size_t i = 0; i < rank; i++) {
    if (!json_is_integer(json_array_get(from, i))) return false;
    out->dim[i] = json_integer_value(json_array_get(from, i));
  }
  return true;
}

static bool read_task(const char *name, int32_t *out)
{
  for (*out = 0; *out < TASKS; ++*out)
    if (strcmp(task_names[*out], name) == 0) return true;
  return false;
}

static bool read_dtype(const char *name, uint32_t *out)
{
  static const uint32_t known[] = {BRIM_DTYPE_U8, BRIM_DTYPE_F32, BRIM_DTYPE_I32};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    *out = known[i];
    if (strcmp(brim_dtype_name(*out), name) == 0) return true;
  }
  return false;
}

/* Reads the class names: one for each class, or NULL. */
static bool read_names(const json_t *from, brim_arena *arena, brim_dataset_info *out)
{
  if (json_is_null(from)) return true;
  if (!json_is_array(from) || json_array_size(from) != (size_t)out->classes) return false;
  const char **names = BRIM_ARENA_NEW(arena, const char *, out->classes);
  for (int64_t i = 0; i < out->classes; i++) {
    const char *name = json_string_value(json_array_get(from, (size_t)i));
    if (!name) return false;
    names[i] = brim_arena_string(arena, name);
  }
  out->class_names = names;
  return true;
}

static bool read_info(const json_t *kept, brim_arena *arena, brim_dataset_info info[BRIM_PART_COUNT])
{
  const char *task, *dtype;
  json_t *sample, *names;
  json_int_t classes, targets, pixels, side, count[BRIM_PART_COUNT];
  brim_dataset_info of = {0};
  if (json_unpack((json_t *)kept, "{s:s, s:o, s:s, s:I, s:o, s:I, s:I, s:I, s:{s:I, s:I, s:I}}", "task", &task,
                  "sample", &sample, "dtype", &dtype, "classes", &classes, "class_names", &names, "targets", &targets,
                  "pixels_max", &pixels, "side_max", &side, "samples", "train", &count[BRIM_PART_TRAIN], "validation",
                  &count[BRIM_PART_VALIDATION], "test", &count[BRIM_PART_TEST]) != 0)
    return false;
  if (classes < 0 || classes > CLASSES_MAX || !read_shape(sample, &of.sample) || !read_task(task, &of.task) ||
      !read_dtype(dtype, &of.dtype))
    return false;
  of.classes = classes;
  of.targets = targets;
  of.pixels_max = pixels;
  of.side_max = side;
  of.documents = json_is_true(json_object_get(kept, "documents"));
  if (!read_names(names, arena, &of)) return false;
  for (int part = 0; part < BRIM_PART_COUNT; part++) {
    info[part] = of;
    info[part].count = count[part];
  }
  return count[BRIM_PART_VALIDATION] >= 0 && count[BRIM_PART_TEST] >= 0;
}

/* Gives the dataset its stored data. If the dataset has no recall(), the data of its current files must equal the
 * stored data. */
static brim_status recall_own(const brim_data *data, const json_t *kept)
{
  json_t *was = json_object_get(kept, "kept");
  if (!BRIM_HAS(brim_dataset_ops, data->ops, recall)) {
    json_t *now = NULL;
    BRIM_TRY(keep_own(data, &now));
    json_t *a = json_pack("{s:O?}", "kept", was), *b = json_pack("{s:o}", "kept", now);
    const brim_status status = brim_data_compare(a, b, false);
    json_decref(a);
    json_decref(b);
    return status;
  }
  char *text = json_dumps(was, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  if (!text) return brim_fail(BRIM_ELOAD, "it lacks the data that dataset '%s' needs", data->plugin->id);
  const brim_status status = data->ops->recall(data->self, text);
  free(text);
  return status;
}

/* Lets samples of tokens be as long as the configuration says (dataset.context), which the user may have changed for
 * this query. Datasets set the shape before they look for files, which may be missing. */
static void take_length(const brim_plugin *plugin, const void *self, brim_dataset_info info[BRIM_PART_COUNT])
{
  brim_dataset_info now = {0};
  if (info->task != BRIM_TASK_TOKENS) return;
  (void)((const brim_dataset_ops *)plugin->ops)->describe(self, BRIM_SPLIT_TRAIN, &now);
  if (now.task != BRIM_TASK_TOKENS || now.sample.rank != info->sample.rank || now.sample.dim[0] < 1) return;
  for (int part = 0; part < BRIM_PART_COUNT; part++) info[part].sample = now.sample;
}

brim_status brim_data_recall_kept(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                                  const json_t *kept, brim_arena *arena)
{
  brim_dataset_info info[BRIM_PART_COUNT];
  if (!read_info(kept, arena, info))
    return brim_fail(BRIM_ELOAD, "it does not describe the samples of dataset '%s'", plugin->id);
  take_length(plugin, self, info);
  BRIM_TRY(brim_data_recall(data, plugin, self, settings, info));
  return recall_own(data, kept);
}
