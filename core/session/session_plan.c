/* The plans of a session. See session.h. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "session/session_parts.h"

/* The type that activations are kept in, by enum brim_precision; 0: that of the parameters. */
static const uint32_t activations[BRIM_PRECISIONS] = {
    [BRIM_PRECISION_BF16] = BRIM_DTYPE_BF16, [BRIM_PRECISION_FP16] = BRIM_DTYPE_F16};

uint32_t brim_session_backend_precisions(const brim_session *s)
{
  const brim_backend_ops *ops = s->backend_ops;
  const bool has_field = ops->size >= offsetof(brim_backend_ops, stores) + sizeof ops->stores;
  uint32_t has = 1u << BRIM_PRECISION_FP32;
  for (size_t i = 0; i < BRIM_PRECISIONS; i++)
    if (has_field && activations[i] && ops->stores & BRIM_STORES(activations[i])) has |= 1u << i;
  return has;
}

uint32_t brim_session_precisions(const brim_session *s)
{
  const uint32_t fp16 = 1u << BRIM_PRECISION_FP16;
  return brim_session_backend_precisions(s) & ~(brim_session_updates_in_backward(s) ? fp16 : 0);
}

brim_choice brim_session_choice(const brim_session *s, int64_t batch)
{
  brim_choice out = s->choice;
  out.micro_batch = batch;
  return out;
}

/* The type that frozen weights are kept in; 0: that of the others. With precision=bf16 kernels read them in bf16
 * anyway, so results are the same. */
static uint32_t frozen_type(const brim_session *s, const brim_choice *v)
{
  const int32_t store = s->settings->backbone.store;
  const bool small = store == BRIM_STORE_BF16 || (store == BRIM_STORE_AUTO && v->precision == BRIM_PRECISION_BF16);
  return small ? BRIM_DTYPE_BF16 : 0;
}

static void add_backbone(const brim_session *s, const brim_choice *v, brim_graph_options *graph)
{
  const brim_config_choice *backbone = brim_config_backbone(s->config);
  if (!backbone) return;
  graph->backbone = backbone->plugin->ops;
  graph->backbone_self = s->backbone;
  graph->backbone_id = backbone->plugin->id;
  graph->frozen_type = frozen_type(s, v);
  graph->given_features = s->features != NULL;
  graph->keep_features = s->extracts;
}

uint64_t brim_session_budget(const brim_session *s, const brim_choice *choice)
{
  const uint64_t set = s->settings->memory.recompute_budget_mb << 20;
  const uint64_t budget = choice->within_bytes ? choice->within_bytes : set ? set : brim_session_room(s, true);
  return budget + (budget == 0);
}

static brim_plan_request make_request(const brim_session *s, const brim_choice *v)
{
  const brim_loss_ops *loss = brim_config_choice_of(s->config, "loss")->plugin->ops;
  brim_plan_request r = {.graph = {.model = brim_config_choice_of(s->config, "model")->plugin->ops,
                                   .model_self = s->model,
                                   .loss_op = loss->op,
                                   .loss = s->loss,
                                   .top_k = s->top_k,
                                   .class_weights = s->class_weights.count > 0,
                                   .soft_labels = s->settings->augment.mixup > 0,
                                   .norm_group = s->settings->training.norm_group,
                                   .sample = s->data.sample,
                                   .task = s->data.train.task,
                                   .classes = s->answers,
                                   .real = s->backend_ops->real,
                                   .activations = activations[v->precision],
                                   .fuse = s->settings->graph.fuse},
                         .backend = s->backend_ops,
                         .backend_self = s->backend,
                         .grain = s->grain,
                         .recompute = (enum brim_recompute_kind)v->recompute,
                         .levels = s->levels,
                         .world = s->world,
                         .shard = (uint32_t)s->settings->dist.shard,
                         .bucket_bytes = s->settings->dist.bucket_mb << 20,
                         .budget_bytes = brim_session_budget(s, v)};
  add_backbone(s, v, &r.graph);
  return r;
}

/* Of the model with its backbone, in evaluation. */
brim_status brim_session_graph(const brim_session *s, int64_t batch, brim_graph **out)
{
  const brim_choice v = brim_session_choice(s, batch);
  brim_plan_request r = make_request(s, &v);
  r.graph.batch = batch;
  return brim_graph_build(&r.graph, out);
}

/* Some losses make probabilities of the output themselves: after another softmax they still train, but badly. */
static void warn_of_output(const brim_graph *g, const char *loss)
{
  if (g->output->producer < 0 || (strcmp(loss, "cross_entropy") != 0 && strcmp(loss, "bce") != 0)) return;
  const brim_node *n = g->node[g->output->producer];
  if (strcmp(n->op, "softmax") != 0 && strcmp(n->op, "log_softmax") != 0 && strcmp(n->op, "sigmoid") != 0) return;
  brim_log(BRIM_LOG_WARN,
           "the model's output is a %s (%s:%d), but loss=%s takes logits and makes probabilities of them itself: name "
           "what comes before as the output",
           n->op, n->file, n->line, loss);
}

/* What a model did not take: its own message says what it takes. */
static brim_status tell_samples(const brim_session *s, brim_status status)
{
  const brim_dataset_info *info = &s->data.train;
  const brim_shape *sample = &s->data.sample;
  char shape[96], answer[64];
  if (status != BRIM_ECONFIG) return status;
  brim_shape_format(shape, sizeof shape, sample);
  if (info->task == BRIM_TASK_TOKENS)
    return brim_fail_add(status, "samples of dataset '%s' are %lld tokens each, of a vocabulary of %lld",
                         s->data.plugin->id, (long long)sample->dim[0], (long long)info->classes);
  if (info->task == BRIM_TASK_VALUES)
    snprintf(answer, sizeof answer, "%lld real number%s", (long long)s->answers, brim_plural(s->answers));
  else
    snprintf(answer, sizeof answer, "one of %lld classes", (long long)s->answers);
  return brim_fail_add(status, "samples of dataset '%s' are %s %s, to be answered with %s", s->data.plugin->id,
                       sample->rank == 3 ? "images" : "real numbers", shape, answer);
}

brim_status brim_session_find_norm_group(brim_session *s)
{
  const brim_choice v = brim_session_choice(s, s->choice.micro_batch);
  brim_plan_request r = make_request(s, &v);
  brim_graph *g = NULL;
  r.graph.fuse = 0;                      /* the author's own operations */
  r.graph.batch = s->choice.micro_batch; /* an author reads these shapes if something does not fit */
  BRIM_TRY(tell_samples(s, brim_graph_build(&r.graph, &g)));
  warn_of_output(g, brim_config_choice_of(s->config, "loss")->plugin->id);
  s->norm_group = g->uses_norm_group ? s->settings->training.norm_group : 0;
  brim_graph_free(g);
  return BRIM_OK;
}

/* Adds a batch shape if it is not there yet. */
static void add_shape(brim_plan_request *r, enum brim_program_kind kind, int64_t batch)
{
  bool known = batch == 0;
  for (size_t k = 0; k < r->shape_count; k++) known = known || (r->shape[k].kind == kind && r->shape[k].batch == batch);
  if (!known) r->shape[r->shape_count++] = (brim_batch_shape){kind, batch};
}

/* Those in which `count` samples are evaluated. */
static void add_evaluation(brim_plan_request *r, int64_t count, int64_t batch)
{
  if (count >= batch) add_shape(r, BRIM_PROGRAM_EVALUATE, batch);
  add_shape(r, BRIM_PROGRAM_EVALUATE, count % batch);
}

/* A rank without samples of a part has the sums of an evaluation all the same. */
static void add_part(const brim_session *s, brim_plan_request *r, enum brim_part part, int64_t batch)
{
  int64_t first, count;
  brim_session_part(s, part, &first, &count);
  add_evaluation(r, count == 0 && s->data.count[part] > 0 ? 1 : count, batch);
}

/* The micro-batches of the rank; `alone`: but those that are left over. A rank without samples has gradients and the
 * update all the same. */
static void add_training(brim_plan_request *r, const brim_order *order, bool alone)
{
  int64_t size[BRIM_ORDER_SIZES];
  const size_t count = brim_order_sizes(order, size);
  if (alone || count == 0) add_shape(r, BRIM_PROGRAM_TRAIN, order->batch);
  for (size_t i = 0; i < count && !alone; i++) add_shape(r, BRIM_PROGRAM_TRAIN, size[i]);
}

brim_status brim_session_plan_choice(const brim_session *s, const brim_choice *choice, bool alone, brim_plan **out)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t batch = brim_session_limit_batch(s, choice->micro_batch),
                eval_batch = brim_session_eval_batch(s, batch);
  const brim_order order = brim_session_order_of(s, batch);
  if (!brim_session_allows(s, batch) && brim_session_updates_in_backward(s))
    return brim_session_refuse_accumulation(s, batch);
  if (!brim_session_allows(s, batch))
    return brim_fail(BRIM_ECONFIG,
                     "training.batch_size %lld is not a multiple of training.norm_group %lld, and the model has batch "
                     "norm: its statistics are taken over whole groups, so that they do not depend on the micro-batch\n"
                     "choose another of the two, or training.gradient_accumulation_steps=1",
                     (long long)batch, (long long)s->norm_group);
  brim_plan_request r = make_request(s, choice);
  brim_optimizer_describe(s->optimizer_ops, s->optimizer_params, &r.update);
  r.update.in_backward = brim_session_updates_in_backward(s);
  r.update.offloaded = s->settings->memory.offload == BRIM_OFFLOAD_OPTIMIZER;
  r.update.checked = choice->precision == BRIM_PRECISION_FP16;
  const bool is_weighted = s->label_weights.count > 0 || s->data.train.task == BRIM_TASK_TOKENS;
  r.update.scaled = t->clip_norm > 0 || is_weighted || r.update.checked;
  r.update.ema_decay = t->ema_decay;
  r.update.max_norm = t->clip_norm;
  add_training(&r, &order, alone);
  if (alone) return brim_plan_create(&r, out);
  add_part(s, &r, BRIM_PART_VALIDATION, eval_batch);
  add_part(s, &r, BRIM_PART_TEST, eval_batch);
  return brim_plan_create(&r, out);
}

brim_status brim_session_peak_of(const brim_session *s, const brim_choice *choice, uint64_t *bytes)
{
  brim_choice c = *choice;
  brim_plan *plan = NULL;
  c.within_bytes = brim_session_budget(s, choice);
  if (s->stand_in) return s->stand_in->peak(s->stand_in->context, choice, c.within_bytes, bytes);
  if (brim_peaks_find(s->peaks, s->device, &c, bytes)) return BRIM_OK;
  BRIM_TRY(brim_session_plan_choice(s, &c, false, &plan));
  *bytes = plan->peak_bytes;
  brim_plan_free(plan);
  brim_peaks_keep(s->peaks, s->device, &c, *bytes);
  return BRIM_OK;
}

brim_status brim_session_plan(const brim_session *s, int64_t batch, brim_plan **out)
{
  const brim_choice v = brim_session_choice(s, batch);
  return brim_session_plan_choice(s, &v, false, out);
}

brim_status brim_session_plan_evaluation(const brim_session *s, int64_t count, int64_t batch, bool keep_output,
                                         brim_plan **out)
{
  const brim_choice v = brim_session_choice(s, batch);
  brim_plan_request r = make_request(s, &v);
  r.graph.keep_output = keep_output;
  add_evaluation(&r, count, batch);
  return brim_plan_create(&r, out);
}
