/* Writes the trained part of a wrapped model in the files of Hugging Face's PEFT: adapter_model.safetensors with names
 * such as "base_model.model.<layer>.lora_A.weight", and adapter_config.json (peft/utils/save_and_load.py,
 * LoraConfig). */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "export/merge.h"
#include "graph/wrap.h"
#include "store/rundir.h"

#define PREFIX "base_model.model."

typedef struct adapter {
  const brim_setup *setup;
  const brim_graph *graph;
  const brim_parameters *trained;
  brim_arena arena;
  brim_safetensor *tensor;
  size_t count;
  const char *saved; /* a module that was trained as a whole, the head; or NULL */
} adapter;

static const brim_safetensor *find_change(const adapter *a, const brim_tensor *t)
{
  for (size_t i = 0; i < a->trained->count; i++)
    if (strcmp(a->trained->tensor[i].name, t->name) == 0 && brim_shape_equal(&a->trained->tensor[i].shape, &t->shape))
      return &a->trained->tensor[i];
  return NULL;
}

/* Adds a tensor of `rows` rows: the change's own rows begin at `first`, the others are 0. */
static brim_status add(adapter *a, const char *name, const brim_tensor *t, int64_t first, int64_t rows)
{
  const brim_safetensor *from = find_change(a, t);
  if (!from)
    return brim_fail(BRIM_ELOAD, "the checkpoint has no '%s' in the shape that the run's configuration gives it",
                     t->name);
  brim_shape shape = t->shape;
  if (rows > 0) shape.dim[0] = rows;
  const size_t count = (size_t)brim_shape_count(&shape), own = (size_t)brim_shape_count(&t->shape);
  float *values = brim_arena_try(&a->arena, count * sizeof *values);
  if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", t->name);
  memset(values, 0, count * sizeof *values);
  const size_t columns = own / (size_t)t->shape.dim[0];
  brim_convert(BRIM_DTYPE_F32, values + (size_t)first * columns, from->dtype, from->data, own);
  a->tensor[a->count++] = (brim_safetensor){.name = name, .dtype = BRIM_DTYPE_F32, .shape = shape, .data = values};
  return BRIM_OK;
}

static brim_status add_changes(adapter *a, bool *listed)
{
  size_t count;
  const brim_wrap_change *c = brim_wrap_changes(a->graph, &count);
  if (count == 0)
    return brim_fail(BRIM_ECONFIG, "the model has no low-rank changes, and PEFT has no format for other changes");
  for (size_t i = 0; i < count; i++) {
    if (i > 0 && c[i].weight == c[i - 1].weight)
      return brim_fail(
          BRIM_ECONFIG,
          "layer '%s' has several low-rank changes, which PEFT cannot represent: --merge writes the whole model",
          c[i].layer);
    const char *down = brim_arena_printf(&a->arena, PREFIX "%s.lora_A.weight", c[i].layer);
    const char *up = brim_arena_printf(&a->arena, PREFIX "%s.lora_B.weight", c[i].layer);
    BRIM_TRY(add(a, down, c[i].down, 0, 0));
    BRIM_TRY(add(a, up, c[i].up, c[i].first_row, c[i].weight->shape.dim[0]));
    listed[c[i].down->id] = listed[c[i].up->id] = true;
  }
  return BRIM_OK;
}

static const char *head_of(const adapter *a)
{
  const char *head = brim_wrap_head(a->graph);
  return head ? head : "head";
}

static brim_status add_all(adapter *a)
{
  const brim_graph *g = a->graph;
  bool *listed = BRIM_ARENA_NEW(&a->arena, bool, g->tensor_count);
  a->tensor = BRIM_ARENA_NEW(&a->arena, brim_safetensor, g->parameter_count);
  BRIM_TRY(add_changes(a, listed));
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    const char *dot = strchr(t->name, '.');
    if (g->parameter[i].is_frozen || listed[t->id]) continue;
    a->saved = head_of(a);
    BRIM_TRY(add(a, brim_arena_printf(&a->arena, PREFIX "%s%s", a->saved, dot ? dot : ""), t, 0, 0));
  }
  return BRIM_OK;
}

static bool names_layer(const adapter *a, const char *target)
{
  size_t count;
  const brim_wrap_change *c = brim_wrap_changes(a->graph, &count);
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    const size_t length = strlen(c[i].layer), end = strlen(target);
    const bool ends = brim_ends_with(c[i].layer, target);
    any = any || (ends && (length == end || c[i].layer[length - end - 1] == '.'));
  }
  return any;
}

/* Lists the targets that occur. A third of a layer counts as the whole layer here. */
static json_t *targets_of(adapter *a)
{
  const brim_lora_options *o = brim_wrap_lora(a->graph);
  json_t *list = json_array();
  for (size_t i = 0; i < o->targets.count; i++) {
    const char *name = o->targets.item[i];
    const size_t length = strlen(name);
    const bool third = length > 2 && name[length - 2] == ':';
    const char *layer = brim_arena_string_n(&a->arena, name, third ? length - 2 : length);
    if (names_layer(a, layer)) json_array_append_new(list, json_string(layer));
  }
  return list;
}

/* Finds whether the program from which the names come stores the weights of changed layers as [in, out], as GPT-2's
 * Conv1D does. */
static brim_status find_fan_in(adapter *a, bool *fan_in)
{
  size_t count;
  const brim_graph *g = a->graph;
  const brim_wrap_change *c = brim_wrap_changes(g, &count);
  const brim_config_request *request = &a->setup->config->request;
  const brim_weights_search search = {request->search, request->search_count};
  brim_safetensor *frozen = BRIM_ARENA_NEW(&a->arena, brim_safetensor, g->parameter_count);
  brim_parameters backbone = {.tensor = frozen};
  const brim_weights_map *map;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_frozen) frozen[backbone.count++] = (brim_safetensor){.name = g->parameter[i].value->name};
  BRIM_TRY(brim_export_find(&a->arena, &search, &backbone, &map));
  *fan_in = false;
  for (size_t i = 0; i < count; i++)
    *fan_in = *fan_in || brim_weights_map_to_file(map, &a->arena, c[i].weight->name).transpose;
  return BRIM_OK;
}

static json_t *text_or_null(const char *text)
{
  return text && text[0] ? json_string(text) : json_null();
}

static brim_status write_config(adapter *a, const char *folder)
{
  char path[BRIM_PATH_MAX];
  bool fan_in;
  const brim_lora_options *o = brim_wrap_lora(a->graph);
  const bool is_language = a->graph->task == BRIM_TASK_TOKENS;
  BRIM_TRY(brim_path_join(path, folder, "adapter_config.json"));
  BRIM_TRY(find_fan_in(a, &fan_in));
  json_t *root =
      json_pack("{s:s, s:o, s:I, s:f, s:f, s:o, s:s, s:o, s:b, s:b, s:o}", "peft_type", "LORA",
                "base_model_name_or_path", text_or_null(a->setup->settings->model.weights), "r", (json_int_t)o->r,
                "lora_alpha", o->alpha, "lora_dropout", o->dropout, "target_modules", targets_of(a), "bias", "none",
                "modules_to_save", a->saved ? json_pack("[s]", a->saved) : json_null(), "fan_in_fan_out", fan_in,
                "inference_mode", 1, "task_type", text_or_null(is_language ? "CAUSAL_LM" : NULL));
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  const brim_status status = text ? brim_file_write_atomic(path, text, strlen(text))
                                  : brim_fail(BRIM_EINTERNAL, "cannot format adapter_config.json");
  free(text);
  json_decref(root);
  return status;
}

static brim_status write_tensors(const adapter *a, const char *folder)
{
  char path[BRIM_PATH_MAX], aside[BRIM_PATH_MAX], parent[BRIM_PATH_MAX];
  static const char *const metadata[] = {"format", "pt", "producer", "brim", NULL};
  brim_file_digest digest;
  BRIM_TRY(brim_path_join(path, folder, "adapter_model.safetensors"));
  BRIM_TRY(brim_path_aside(path, parent, aside));
  BRIM_TRY(brim_safetensors_write(aside, a->tensor, a->count, metadata, &digest));
  return brim_file_publish(aside, path, parent);
}

/* A new folder appears complete with both files; files are moved into an existing folder when both are complete. */
static brim_status publish(const char *aside, const char *folder, const char *parent)
{
  static const char *const name[] = {"adapter_model.safetensors", "adapter_config.json"};
  char from[BRIM_PATH_MAX], to[BRIM_PATH_MAX];
  if (!brim_is_folder(folder)) return brim_file_publish(aside, folder, parent);
  for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
    BRIM_TRY(brim_path_join(from, aside, name[i]));
    BRIM_TRY(brim_path_join(to, folder, name[i]));
    BRIM_TRY(brim_file_publish(from, to, folder));
  }
  return BRIM_OK;
}

static brim_status write_aside(adapter *a, const char *aside)
{
  (void)brim_folder_remove(aside); /* left by a killed process; if it cannot be removed, mkdir fails */
  if (mkdir(aside, 0777) != 0) return brim_fail(BRIM_EIO, "cannot make the folder '%s': %s", aside, strerror(errno));
  BRIM_TRY(write_tensors(a, aside));
  return write_config(a, aside);
}

static brim_status write_all(adapter *a, const char *folder)
{
  char parent[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  folder = brim_arena_string_n(&a->arena, folder, length);
  BRIM_TRY(brim_path_aside(folder, parent, aside));
  BRIM_TRY(add_all(a));
  brim_status status = write_aside(a, aside);
  if (status == BRIM_OK) status = publish(aside, folder, parent);
  (void)brim_folder_remove(aside);
  return status;
}

brim_status brim_peft_write(const brim_setup *s, const brim_parameters *trained, const char *folder)
{
  brim_graph *g = NULL;
  BRIM_TRY(brim_merge_graph(s, &g));
  adapter a = {.setup = s, .graph = g, .trained = trained};
  const brim_status status = write_all(&a, folder);
  brim_arena_release(&a.arena);
  brim_graph_free(g);
  return status;
}
