/* See brim/engine.h. */
#include "brim/engine.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/convert.h"
#include "base/text.h"
#include "builtin/builtin.h"
#include "exec/exec.h"
#include "exec/initialize.h"
#include "graph/fuse.h"
#include "graph/plan.h"
#include "plugin/instance.h"
#include "plugin/registry.h"

struct brim_engine {
  brim_arena arena;
  brim_registry *registry;
  const brim_plugin *plugin; /* the backend's */
  const brim_backend_ops *ops;
  void *backend;
  int device;
  int64_t plans;  /* plans that are not released yet */
  bool is_closed; /* the caller closed it; it is freed with the last plan */
};

struct brim_training_plan {
  brim_arena arena;
  brim_engine *engine;
  brim_network network;
  brim_model_ops built; /* the functions of a model that network.build builds */
  const brim_plugin *model;
  void *model_self;
  brim_graph_loss loss;
  brim_list class_weights; /* count 0: none */
  const brim_plugin *optimizer;
  void *optimizer_params;
  int64_t losses_each; /* number of losses of a sample */
  brim_plan *plan;
  bool is_placed;
  bool is_freed; /* the caller freed it; it is released with its training */
};

struct brim_training {
  brim_training_plan *of;
  brim_exec *exec;
  const brim_program *train, *update, *answer;
  brim_step step;
  int64_t fed;   /* samples of the current batch */
  double weight; /* sum of the weights of these samples */
  void *values;  /* a micro-batch, in the backend's type */
  void *labels, *output;
};

/* Copies a caller's struct, which may have fewer or more fields: copies the fields that both sides know. */
static brim_status take_struct(void *to, size_t bytes, const void *from, const char *name)
{
  uint32_t size = 0;
  memset(to, 0, bytes);
  if (from) memcpy(&size, from, sizeof size);
  if (size < sizeof size) return brim_fail(BRIM_EINVAL, "%s: set its size to sizeof(%s)", name, name);
  memcpy(to, from, size < bytes ? size : bytes);
  return BRIM_OK;
}

/* Checks an argument or the result of an earlier call. */
static brim_status need_pointer(const void *pointer, const char *what)
{
  return pointer ? BRIM_OK : brim_fail(BRIM_EINVAL, "%s is NULL", what);
}

static size_t count_words(const char *const *word)
{
  size_t count = 0;
  while (word && word[count]) count++;
  return count;
}

/* Finds a plugin and makes an instance with the settings in `word`. */
static brim_status make_instance(const brim_engine *e, enum brim_kind kind, const char *id, const char *const *word,
                                 brim_arena *arena, const brim_plugin **plugin, void **self)
{
  const brim_registry_entry *entry = brim_registry_find(e->registry, kind, id);
  const brim_registry_failure *failure = entry ? NULL : brim_registry_failure_of(e->registry, kind, id);
  if (failure) return brim_fail(BRIM_ELOAD, "%s '%s' cannot be loaded: %s", brim_kind_name(kind), id, failure->reason);
  if (!entry) return brim_fail(BRIM_ELOAD, "unknown %s '%s'", brim_kind_name(kind), id);
  const brim_status status = brim_instance_with(entry->plugin, word, count_words(word), arena, self);
  if (status != BRIM_OK) return brim_fail_add(status, "while making %s '%s'", brim_kind_name(kind), id);
  *plugin = entry->plugin;
  return BRIM_OK;
}

/* ---- engines ---- */

static brim_status open_backend(brim_engine *e, const brim_engine_options *o)
{
  const char *id = o->backend ? o->backend : "cpu";
  BRIM_TRY(brim_registry_open(brim_core_plugins, o->plugins, count_words(o->plugins), &e->registry));
  BRIM_TRY(make_instance(e, BRIM_BACKEND, id, o->settings, &e->arena, &e->plugin, &e->backend));
  e->ops = e->plugin->ops;
  const int count = e->ops->device_count(e->backend);
  if (o->device < 0 || o->device >= count)
    return brim_fail(BRIM_ENODEVICE, "backend '%s' has %d device%s; there is no device %d", id, count,
                     brim_plural(count), (int)o->device);
  e->device = o->device;
  return BRIM_HAS(brim_backend_ops, e->ops, select) ? e->ops->select(e->backend, e->device) : BRIM_OK;
}

static void release_engine(brim_engine *e)
{
  if (e->backend && e->plugin->destroy) e->plugin->destroy(e->backend);
  brim_registry_free(e->registry);
  brim_arena_release(&e->arena);
  free(e);
}

brim_status brim_engine_open(const brim_engine_options *options, brim_engine **out)
{
  brim_engine_options o;
  BRIM_TRY(need_pointer(out, "the pointer for the engine"));
  *out = NULL;
  BRIM_TRY(take_struct(&o, sizeof o, options, "brim_engine_options"));
  brim_engine *e = brim_xcalloc(1, sizeof *e);
  const brim_status status = open_backend(e, &o);
  if (status == BRIM_OK)
    *out = e;
  else
    release_engine(e);
  return status;
}

void brim_engine_close(brim_engine *e)
{
  if (!e) return;
  e->is_closed = true;
  if (e->plans == 0) release_engine(e);
}

/* ---- plans ---- */

static brim_status check_network(const brim_network *n)
{
  if (!n->build == !n->model) return brim_fail(BRIM_EINVAL, "brim_network: set either build or model");
  if (n->build && n->settings)
    return brim_fail(BRIM_EINVAL, "brim_network.settings needs brim_network.model: a build function has no settings");
  if (n->sample.rank < 1 || n->sample.rank >= BRIM_DIMS_MAX)
    return brim_fail(BRIM_EINVAL, "brim_network.sample must have 1 to %d dimensions, got %d", BRIM_DIMS_MAX - 1,
                     (int)n->sample.rank);
  for (int32_t i = 0; i < n->sample.rank; i++)
    if (n->sample.dim[i] < 1)
      return brim_fail(BRIM_EINVAL, "brim_network.sample: dimension %d must be at least 1, got %lld", (int)i,
                       (long long)n->sample.dim[i]);
  if (n->task < 0 || n->task > BRIM_TASK_VALUES)
    return brim_fail(BRIM_EINVAL, "brim_network.task: unknown task %d", (int)n->task);
  if (n->task == BRIM_TASK_TOKENS && n->sample.rank != 1)
    return brim_fail(BRIM_EINVAL, "brim_network.sample must be {1, {T}} for tokens, got %d dimensions",
                     (int)n->sample.rank);
  if (n->classes < 1) return brim_fail(BRIM_EINVAL, "brim_network.classes must be at least 1");
  if (n->batch < 1) return brim_fail(BRIM_EINVAL, "brim_network.batch must be at least 1");
  if (n->micro_batch < 1 || n->batch % n->micro_batch != 0)
    return brim_fail(BRIM_EINVAL, "brim_network.micro_batch must divide the batch of %lld, got %lld",
                     (long long)n->batch, (long long)n->micro_batch);
  if (n->grain < 0) return brim_fail(BRIM_EINVAL, "brim_network.grain must not be negative");
  if (n->activations && n->activations != BRIM_DTYPE_BF16)
    return brim_fail(BRIM_EINVAL, "brim_network.activations must be 0 or BRIM_DTYPE_BF16");
  if (n->recompute < 0 || n->recompute > BRIM_RECOMPUTE_FULL)
    return brim_fail(BRIM_EINVAL, "brim_network.recompute must be 0, 1 or 2, got %d", (int)n->recompute);
  return BRIM_OK;
}

static brim_status make_model(brim_training_plan *p)
{
  const brim_network *n = &p->network;
  if (n->build) {
    p->built = (brim_model_ops){.size = sizeof p->built, .build = n->build};
    p->model_self = (void *)(uintptr_t)n->self;
    return BRIM_OK;
  }
  BRIM_TRY(make_instance(p->engine, BRIM_MODEL, n->model, n->settings, &p->arena, &p->model, &p->model_self));
  const brim_model_ops *ops = p->model->ops;
  if (ops->size >= offsetof(brim_model_ops, wraps) + sizeof ops->wraps && ops->wraps != BRIM_WRAPS_NOTHING)
    return brim_fail(BRIM_ENOTSUP,
                     "model '%s' wraps another model, which brim/engine.h does not support: use brim train", n->model);
  p->built = (brim_model_ops){.size = sizeof p->built, .build = ops->build};
  return BRIM_OK;
}

static brim_status make_loss(brim_training_plan *p)
{
  const brim_network *n = &p->network;
  const char *id = n->loss ? n->loss : n->task == BRIM_TASK_VALUES ? "mse" : "cross_entropy";
  const brim_plugin *plugin;
  brim_list *w = &p->class_weights;
  double sum = 0;
  void *params;
  BRIM_TRY(make_instance(p->engine, BRIM_LOSS, id, n->loss_settings, &p->arena, &plugin, &params));
  const brim_loss_ops *ops = plugin->ops;
  if (n->task == BRIM_TASK_TOKENS && !(ops->takes & BRIM_TAKES(n->task)))
    return brim_fail(BRIM_EINVAL, "brim_network.loss must be 'cross_entropy' for tokens, got '%s'", id);
  p->loss = brim_loss_describe(plugin, params, w);
  for (size_t i = 0; i < w->count; i++) sum += w->item[i];
  if (w->count > 0 && n->task == BRIM_TASK_VALUES)
    return brim_fail(BRIM_EINVAL,
                     "brim_network.loss_settings: class_weights need classes, and the task BRIM_TASK_VALUES has none");
  if (w->count > 0 && ((int64_t)w->count != n->classes || sum <= 0))
    return brim_fail(BRIM_EINVAL,
                     "brim_network.loss_settings: class_weights must be %lld numbers, not all 0; got %zu%s",
                     (long long)n->classes, w->count, sum > 0 ? "" : ", all 0");
  return BRIM_OK;
}

/* Whether there is a class whose samples the loss ignores. */
static bool ignores_a_class(const brim_training_plan *p)
{
  return p->network.task == BRIM_TASK_CLASS && p->loss.attr.ignores && p->loss.attr.ignore_index >= 0 &&
         p->loss.attr.ignore_index < p->network.classes;
}

static bool is_ignored(const brim_training_plan *p, int32_t label)
{
  if (p->network.task == BRIM_TASK_TOKENS && label == BRIM_NO_TOKEN) return true;
  return (p->network.task == BRIM_TASK_TOKENS || ignores_a_class(p)) && label == p->loss.attr.ignore_index;
}

/* Whether labels have different weights, so that a batch's weight is known only after its last micro-batch. */
static bool is_weighted(const brim_training_plan *p)
{
  return p->network.task == BRIM_TASK_TOKENS || p->class_weights.count > 0 || ignores_a_class(p);
}

static brim_status make_optimizer(brim_training_plan *p)
{
  const brim_network *n = &p->network;
  const brim_plugin *plugin;
  const char *id = n->optimizer ? n->optimizer : "adamw";
  BRIM_TRY(
      make_instance(p->engine, BRIM_OPTIMIZER, id, n->optimizer_settings, &p->arena, &plugin, &p->optimizer_params));
  p->optimizer = plugin;
  return BRIM_OK;
}

static brim_status plan_training(brim_training_plan *p)
{
  const brim_network *n = &p->network;
  const brim_engine *e = p->engine;
  BRIM_TRY(make_model(p));
  BRIM_TRY(make_loss(p));
  BRIM_TRY(make_optimizer(p));
  const bool has_stores = e->ops->size >= offsetof(brim_backend_ops, stores) + sizeof e->ops->stores;
  if (n->activations && !(has_stores && e->ops->stores & BRIM_STORES(n->activations)))
    return brim_fail(BRIM_ENOTSUP, "backend '%s' cannot keep activations in bf16", e->plugin->id);
  brim_graph_loss loss = p->loss; /* kernels support only one label of ignored tokens */
  if (n->task == BRIM_TASK_TOKENS && loss.attr.ignores) loss.attr.ignore_index = BRIM_NO_TOKEN;
  brim_plan_request r = {.graph = {.model = &p->built,
                                   .model_self = p->model_self,
                                   .loss = loss,
                                   .class_weights = p->class_weights.count > 0,
                                   .norm_group = n->micro_batch,
                                   .sample = n->sample,
                                   .task = n->task,
                                   .classes = n->classes,
                                   .real = e->ops->real,
                                   .activations = n->activations,
                                   .fuse = BRIM_FUSE_ALL},
                         .backend = e->ops,
                         .backend_self = e->backend,
                         .grain = n->grain,
                         .recompute = (enum brim_recompute_kind)n->recompute,
                         .accumulates = true,
                         .keep_answers = n->answers != 0};
  brim_optimizer_describe(p->optimizer->ops, p->optimizer_params, &r.update);
  if (r.update.evaluated)
    return brim_fail(BRIM_ENOTSUP,
                     "optimizer '%s' evaluates other weights than it trains, which brim/engine.h does not support",
                     p->optimizer->id);
  r.update.scaled = is_weighted(p);
  r.shape[r.shape_count++] = (brim_batch_shape){BRIM_PROGRAM_TRAIN, n->micro_batch};
  if (n->answers) r.shape[r.shape_count++] = (brim_batch_shape){BRIM_PROGRAM_EVALUATE, n->micro_batch};
  return brim_plan_create(&r, &p->plan);
}

static void release_plan(brim_training_plan *p)
{
  brim_engine *e = p->engine;
  brim_plan_free(p->plan);
  if (p->model && p->model_self && p->model->destroy) p->model->destroy(p->model_self);
  brim_arena_release(&p->arena);
  free(p);
  e->plans--;
  if (e->is_closed && e->plans == 0) release_engine(e);
}

static brim_status plan_network(brim_engine *e, const brim_network *n, brim_training_plan **out)
{
  *out = NULL;
  BRIM_TRY(check_network(n));
  brim_training_plan *p = brim_xcalloc(1, sizeof *p);
  p->engine = e;
  e->plans++;
  p->network = *n;
  p->losses_each = n->task == BRIM_TASK_TOKENS ? n->sample.dim[0] : 1;
  const brim_status status = plan_training(p);
  if (status == BRIM_OK)
    *out = p;
  else
    release_plan(p);
  return status;
}

brim_status brim_engine_plan(brim_engine *e, const brim_network *network, brim_training_plan **out)
{
  brim_network n;
  BRIM_TRY(need_pointer(out, "the pointer for the plan"));
  *out = NULL;
  BRIM_TRY(need_pointer(e, "the engine"));
  BRIM_TRY(take_struct(&n, sizeof n, network, "brim_network"));
  if (n.micro_batch == 0) n.micro_batch = n.batch;
  return plan_network(e, &n, out);
}

/* For a divisor d of n, returns the next smaller divisor of n, or 0 if d is 1. Tests at most 2 sqrt(n) numbers. */
static int64_t next_divisor(int64_t n, int64_t d)
{
  for (int64_t parts = n / d + 1; parts <= n / parts; parts++)
    if (n % parts == 0) return n / parts;
  for (int64_t i = d - 1 < n / d ? d - 1 : n / d; i > 0; i--)
    if (n % i == 0) return i;
  return 0;
}

brim_status brim_engine_plan_within(brim_engine *e, const brim_network *network, uint64_t bytes,
                                    brim_training_plan **out)
{
  brim_network n;
  uint64_t least = UINT64_MAX;
  BRIM_TRY(need_pointer(out, "the pointer for the plan"));
  *out = NULL;
  BRIM_TRY(need_pointer(e, "the engine"));
  BRIM_TRY(take_struct(&n, sizeof n, network, "brim_network"));
  n.micro_batch = n.batch;
  BRIM_TRY(check_network(&n));
  for (; n.micro_batch > 0; n.micro_batch = next_divisor(n.batch, n.micro_batch)) {
    if (n.grain > 0 && n.micro_batch % n.grain != 0 && n.micro_batch > n.grain) continue;
    brim_training_plan *p;
    BRIM_TRY(plan_network(e, &n, &p));
    if (p->plan->peak_bytes <= bytes) {
      *out = p;
      return BRIM_OK;
    }
    if (p->plan->peak_bytes < least) least = p->plan->peak_bytes;
    brim_engine_plan_free(p);
  }
  return brim_fail(BRIM_EBUDGET, "the smallest micro-batch takes %llu bytes; the limit is %llu",
                   (unsigned long long)least, (unsigned long long)bytes);
}

void brim_engine_plan_free(brim_training_plan *p)
{
  if (!p) return;
  p->is_freed = true;
  if (!p->is_placed) release_plan(p);
}

void brim_engine_figures(const brim_training_plan *p, brim_training_figures *out)
{
  if (!p || !out) return;
  const brim_plan *plan = p->plan;
  const uint32_t size = out->size;
  const brim_training_figures all = {.size = size,
                                     .peak_bytes = plan->peak_bytes,
                                     .parameter_bytes = plan->class_bytes[BRIM_ROLE_PARAMETER],
                                     .gradient_bytes = plan->class_bytes[BRIM_ROLE_GRADIENT],
                                     .optimizer_bytes = plan->class_bytes[BRIM_ROLE_OPTIMIZER],
                                     .activation_bytes = plan->class_bytes[BRIM_ROLE_ACTIVATION],
                                     .workspace_bytes = plan->class_bytes[BRIM_ROLE_WORKSPACE],
                                     .data_bytes = plan->class_bytes[BRIM_ROLE_DATA],
                                     .lower_bound_bytes = plan->lower_bound_bytes,
                                     .parameters = brim_plan_parameters(plan),
                                     .micro_batch = p->network.micro_batch,
                                     .peak_node = plan->peak_op};
  memcpy(out, &all, size < sizeof all ? size : sizeof all);
}

/* ---- training ---- */

static size_t bytes_of(const brim_tensor *t)
{
  return (size_t)brim_shape_count(&t->shape) * brim_dtype_bytes(t->dtype);
}

static brim_status place_training(brim_training *t, uint64_t seed)
{
  brim_training_plan *p = t->of;
  const int64_t n = p->network.micro_batch;
  BRIM_TRY(brim_exec_open(p->plan, p->engine->device, &t->exec));
  t->train = brim_plan_program(p->plan, BRIM_PROGRAM_TRAIN, n);
  t->answer = brim_plan_program(p->plan, BRIM_PROGRAM_EVALUATE, n);
  t->update = &p->plan->program[p->plan->program_count - 1];
  const brim_graph *g = t->train->graph;
  t->values = brim_try_malloc(bytes_of(g->input));
  t->labels = brim_try_malloc(bytes_of(g->label));
  t->output = brim_try_malloc(t->answer ? bytes_of(t->answer->graph->output) : 1);
  if (!t->values || !t->labels || !t->output)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a micro-batch of %lld samples", (long long)n);
  t->step = (brim_step){.seed = seed,
                        .loss_scale = 1.0 / ((double)p->network.batch * (double)p->losses_each),
                        .norm_groups = p->network.batch / n,
                        .gradient_scale = 1};
  if (g->class_weight)
    BRIM_TRY(brim_exec_write_as(t->exec, t->train, g->class_weight, BRIM_DTYPE_F64, p->class_weights.item));
  return brim_initialize_parameters(t->exec, t->train, seed);
}

brim_status brim_engine_place(brim_training_plan *p, uint64_t seed, brim_training **out)
{
  BRIM_TRY(need_pointer(out, "the pointer for the training"));
  *out = NULL;
  BRIM_TRY(need_pointer(p, "the plan"));
  if (p->is_placed) return brim_fail(BRIM_EINVAL, "the plan is already placed");
  brim_training *t = brim_xcalloc(1, sizeof *t);
  t->of = p;
  p->is_placed = true;
  const brim_status status = place_training(t, seed);
  if (status == BRIM_OK)
    *out = t;
  else
    brim_engine_unplace(t);
  return status;
}

void brim_engine_unplace(brim_training *t)
{
  if (!t) return;
  brim_exec_close(t->exec);
  free(t->values);
  free(t->labels);
  free(t->output);
  t->of->is_placed = false;
  if (t->of->is_freed) release_plan(t->of);
  free(t);
}

/* Converts from the caller's types, float and int32_t. */
static void take_values(const brim_tensor *t, const void *from, void *to)
{
  const uint32_t type = t->dtype == BRIM_DTYPE_I32 ? BRIM_DTYPE_I32 : BRIM_DTYPE_F32;
  const size_t count = (size_t)brim_shape_count(&t->shape);
  if (t->dtype == type)
    memcpy(to, from, bytes_of(t));
  else
    brim_convert(t->dtype, to, type, from, count);
}

/* For classes and tokens: marks labels that are ignored, and adds the weights of the others to *weight. */
static brim_status take_labels(const brim_training *t, const void *from, double *weight)
{
  const brim_training_plan *p = t->of;
  const brim_tensor *label = t->train->graph->label;
  const int64_t count = brim_shape_count(&label->shape), classes = p->network.classes;
  take_values(label, from, t->labels);
  *weight = label->dtype == BRIM_DTYPE_I32 ? 0 : (double)p->network.micro_batch;
  if (label->dtype != BRIM_DTYPE_I32) return BRIM_OK;
  int32_t *at = t->labels;
  for (int64_t i = 0; i < count; i++) {
    const bool counts = !is_ignored(p, at[i]);
    if (counts && (at[i] < 0 || at[i] >= classes))
      return brim_fail(BRIM_EINVAL, "label %lld of the micro-batch is %d; there are %lld classes", (long long)i,
                       (int)at[i], (long long)classes);
    if (counts)
      *weight += p->class_weights.count > 0 ? p->class_weights.item[at[i]] : 1;
    else if (p->network.task == BRIM_TASK_TOKENS)
      at[i] = BRIM_NO_TOKEN;
  }
  return BRIM_OK;
}

static brim_status check_tokens(const brim_training *t)
{
  const brim_tensor *input = t->train->graph->input;
  const int64_t count = brim_shape_count(&input->shape);
  if (input->dtype != BRIM_DTYPE_I32) return BRIM_OK;
  for (int64_t i = 0; i < count; i++)
    if (((int32_t *)t->values)[i] < 0 || ((int32_t *)t->values)[i] >= t->of->network.classes)
      return brim_fail(BRIM_EINVAL, "token %lld of the micro-batch is %d; the vocabulary has %lld tokens", (long long)i,
                       (int)((int32_t *)t->values)[i], (long long)t->of->network.classes);
  return BRIM_OK;
}

brim_status brim_engine_feed(brim_training *t, const void *values, const void *labels)
{
  double weight;
  BRIM_TRY(need_pointer(t, "the training"));
  BRIM_TRY(need_pointer(values, "values"));
  BRIM_TRY(need_pointer(labels, "labels"));
  const brim_network *n = &t->of->network;
  if (t->fed == n->batch)
    return brim_fail(BRIM_EINVAL, "all %lld samples of the batch are fed: call brim_engine_step", (long long)n->batch);
  take_values(t->train->graph->input, values, t->values);
  BRIM_TRY(check_tokens(t));
  BRIM_TRY(take_labels(t, labels, &weight));
  if (t->fed == 0) {
    BRIM_TRY(brim_exec_zero_gradients(t->exec));
    BRIM_TRY(brim_exec_zero_metrics(t->exec));
    t->weight = 0;
  }
  t->step.first_sample = t->fed;
  brim_status status = brim_exec_load(t->exec, t->train, t->values, t->labels);
  if (status == BRIM_OK) status = brim_exec_run(t->exec, t->train, &t->step, NULL);
  if (status != BRIM_OK) { /* a part of the micro-batch may have been added to sums and gradients */
    t->fed = 0;
    return brim_fail_add(status, "in a micro-batch; the batch is dropped: feed it again from its first sample");
  }
  t->fed += n->micro_batch;
  t->weight += weight;
  return BRIM_OK;
}

brim_status brim_engine_step(brim_training *t, double *loss)
{
  double metrics[2];
  BRIM_TRY(need_pointer(t, "the training"));
  const brim_training_plan *p = t->of;
  const brim_network *n = &p->network;
  if (t->fed < n->batch)
    return brim_fail(BRIM_EINVAL, "%lld of the batch's %lld samples are fed: call brim_engine_feed", (long long)t->fed,
                     (long long)n->batch);
  t->fed = 0; /* however this step ends */
  BRIM_TRY(brim_exec_metrics(t->exec, t->train, metrics, 2));
  if (t->weight == 0) return brim_fail(BRIM_EINVAL, "every label of the batch is ignored or has the weight 0");
  if (loss) *loss = metrics[0] / t->weight;
  if (!isfinite(metrics[0]))
    return brim_fail(BRIM_ENUMERIC, "the loss of step %llu is not finite", (unsigned long long)t->step.step + 1);
  t->step.gradient_scale = is_weighted(p) ? (double)n->batch * (double)p->losses_each / t->weight : 1;
  BRIM_TRY(brim_optimizer_fill(p->optimizer, p->optimizer_params, 1, &t->step));
  BRIM_TRY(brim_exec_run(t->exec, t->update, &t->step, NULL));
  BRIM_TRY(brim_exec_wait(t->exec));
  t->step.step++;
  return BRIM_OK;
}

brim_status brim_engine_answer(brim_training *t, const void *values, float *out)
{
  BRIM_TRY(need_pointer(t, "the training"));
  BRIM_TRY(need_pointer(values, "values"));
  BRIM_TRY(need_pointer(out, "the memory for the answers"));
  if (!t->answer) return brim_fail(BRIM_EINVAL, "the plan has no room for answers: set brim_network.answers");
  if (t->fed > 0) return brim_fail(BRIM_EINVAL, "a batch is being fed: call brim_engine_step first");
  const brim_graph *g = t->answer->graph;
  take_values(g->input, values, t->values);
  BRIM_TRY(check_tokens(t));
  memset(t->labels, 0, bytes_of(g->label));
  BRIM_TRY(brim_exec_load(t->exec, t->answer, t->values, t->labels));
  BRIM_TRY(brim_exec_run(t->exec, t->answer, &(brim_step){.loss_scale = 1}, NULL));
  BRIM_TRY(brim_exec_read(t->exec, t->answer, g->output, t->output));
  brim_convert(BRIM_DTYPE_F32, out, g->output->dtype, t->output, (size_t)brim_shape_count(&g->output->shape));
  return BRIM_OK;
}

/* ---- parameters ---- */

/* Finds a parameter by name and checks the caller's array. */
static brim_status find_parameter(const brim_training *t, const char *name, const float *values, uint64_t count,
                                  const brim_tensor **out)
{
  BRIM_TRY(need_pointer(t, "the training"));
  BRIM_TRY(need_pointer(name, "the parameter's name"));
  BRIM_TRY(need_pointer(values, "the memory for the values"));
  const brim_parameter *p = brim_graph_named_parameter(t->train->graph, name);
  const uint64_t has = p ? (uint64_t)brim_shape_count(&p->value->shape) : 0;
  if (!p) return brim_fail(BRIM_EINVAL, "the network has no parameter '%s'", name);
  if (has != count)
    return brim_fail(BRIM_EINVAL, "parameter '%s' has %llu values, not %llu", name, (unsigned long long)has,
                     (unsigned long long)count);
  *out = p->value;
  return BRIM_OK;
}

brim_status brim_engine_fetch(brim_training *t, const char *name, float *out, uint64_t count)
{
  const brim_tensor *value;
  BRIM_TRY(find_parameter(t, name, out, count, &value));
  return brim_exec_read_as(t->exec, t->train, value, BRIM_DTYPE_F32, out);
}

brim_status brim_engine_write(brim_training *t, const char *name, const float *values, uint64_t count)
{
  const brim_tensor *value;
  BRIM_TRY(find_parameter(t, name, values, count, &value));
  return brim_exec_write_as(t->exec, t->train, value, BRIM_DTYPE_F32, values);
}
