/* Builds a whole graph from a model: its forward pass, the loss, the metrics, fusion, and the backward pass. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/long_call.h"
#include "brim/optimizer.h"
#include "graph/documents.h"
#include "graph/fuse.h"
#include "graph/generate.h"
#include "graph/loss_build.h"
#include "graph/lower.h"
#include "graph/wrap.h"

#undef brim_output
#undef brim_block

brim_graph *brim_at(brim_graph *g, const char *file, int line)
{
  const char *slash = strrchr(file, '/');
  g->file = slash ? slash + 1 : file;
  g->line = line;
  return g;
}

brim_tensor *brim_input(brim_graph *g)
{
  return g->tokens ? g->tokens : g->input;
}
brim_tensor *brim_positions(brim_graph *g)
{
  return g->places;
}
int64_t brim_capacity(const brim_graph *g)
{
  const brim_tensor *input = g->tokens ? g->tokens : g->input;
  if (g->capacity > 0) return g->capacity;
  return input->shape.rank > 1 ? input->shape.dim[1] : 1;
}
int64_t brim_classes(const brim_graph *g)
{
  return g->classes;
}
int32_t brim_task_of(const brim_graph *g)
{
  return g->task;
}

brim_shape brim_shape_of(const brim_tensor *x)
{
  return x ? x->shape : (brim_shape){0};
}

void brim_output(brim_graph *g, brim_tensor *logits)
{
  if (!brim_graph_accepts(g, "output", NULL, logits)) return;
  if (!brim_graph_needs_samples(g, "output", NULL, logits)) return;
  brim_tensor **output = brim_wrap_output(g);
  if (*output) {
    brim_graph_fail(g, "output", NULL, "the model's output was named twice");
    return;
  }
  *output = logits;
}

brim_tensor *brim_block(brim_graph *g, brim_tensor *x)
{
  if (!brim_graph_accepts(g, "block", NULL, x)) return NULL;
  if (g->block_end_count == g->block_end_room) {
    const brim_tensor **before = g->block_end;
    g->block_end_room = 2 * g->block_end_room + 16;
    g->block_end = BRIM_ARENA_NEW(&g->arena, const brim_tensor *, g->block_end_room);
    if (before) memcpy(g->block_end, before, g->block_end_count * sizeof *before);
  }
  g->block_end[g->block_end_count++] = x;
  return x;
}

/* The shape of the logits: a row for each label. */
static brim_shape shape_of_logits(const brim_graph *g)
{
  brim_shape s = g->label->shape;
  s.dim[s.rank++] = g->classes;
  return s;
}

/* The nodes after the product that makes the output: 1 for a cap of the logits, else 0. */
static size_t caps_of_logits(const brim_graph *g)
{
  const brim_node *n = g->node_count > 1 ? g->node[g->node_count - 1] : NULL;
  return n && g->uncapped && strcmp(n->op, "formula") == 0 && n->in[0] == g->uncapped && n->out[0] == g->output;
}

/* Whether the loss can include the product that makes the output. No other node may read the logits, so the last node,
 * apart from a cap, must be a linear. With few classes this is not worthwhile, because the logits are then computed
 * twice and the confusion matrix needs them. With an ignored class it is impossible, because the loss gives no rank for
 * samples of that class, but metrics need their answers. */
static bool can_hold_product(const brim_graph *g, const brim_graph_options *o)
{
  if (g->label->dtype != BRIM_DTYPE_I32) return false;
  const size_t caps = caps_of_logits(g);
  const brim_node *n = g->node_count > caps ? g->node[g->node_count - 1 - caps] : NULL;
  const bool wanted = (o->fuse & BRIM_FUSE_LINEAR_LOSS) && !o->keep_output && !o->squares && !o->class_weights;
  if (!wanted || g->classes < BRIM_MANY_CLASSES || strcmp(o->loss.op, "softmax_cross_entropy") != 0) return false;
  if (caps && o->loss.attr.smoothing > 0) return false; /* no kernel has both */
  if (o->loss.attr.ignores && o->loss.attr.ignore_index >= 0 && o->loss.attr.ignore_index < g->classes) return false;
  if (!n || strcmp(n->op, "linear") != 0 || n->out[0] != (caps ? g->uncapped : g->output)) return false;
  const brim_shape logits = shape_of_logits(g);
  return brim_shape_equal(&g->output->shape, &logits) && n->out[0]->id + caps + 1 == g->tensor_count &&
         (!o->offers || o->offers(o->offers_arg, "linear_cross_entropy"));
}

/* Returns the k of top-k accuracy in evaluation; 0: turned off. */
static int32_t top_k_of(const brim_graph *g, const brim_graph_options *o)
{
  return g->training ? 0 : o->top_k;
}

/* Replaces the last product and its result, with or without a cap, by a loss that includes them. */
static brim_status add_linear_loss(brim_graph *g, const brim_graph_options *o)
{
  const size_t caps = caps_of_logits(g);
  brim_loss_attr attr = o->loss.attr;
  if (caps) attr.softcap = g->softcap;
  g->node_count -= caps + 1;
  g->tensor_count -= caps + 1;
  g->output = NULL;
  const brim_node *product = g->node[g->node_count];
  const uint32_t count = product->in_count + 1;
  brim_tensor *const in[] = {product->in[0], product->in[1], g->label, count > 3 ? product->in[2] : NULL};
  const brim_node *loss =
      brim_graph_node(g, "linear_cross_entropy", product->name, in, count, &(brim_attr){.loss = attr});
  if (!loss) return g->status;
  const brim_attr metrics = {.metrics = {.top_k = top_k_of(g, o)}};
  const brim_shape metrics_shape = {1, {2 + (metrics.metrics.top_k > 0)}};
  g->loss = loss->out[0];
  if (o->keep_token_losses) g->kept_answers = loss->out[1];
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics_shape, "metrics");
  brim_graph_node_into(g, "rank_metrics", "metrics", loss->out, 2, &g->metrics, 1, &metrics);
  return g->status;
}

/* Adds one persistent tensor of `count` numbers and the node `op` that adds to it. */
static brim_status add_metrics(brim_graph *g, const char *op, int64_t count, const brim_attr *attr)
{
  const brim_shape shape = {1, {count}};
  brim_tensor *const in[] = {g->loss, g->output, g->label};
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &shape, "metrics");
  brim_graph_node_into(g, op, "metrics", in, 3, &g->metrics, 1, attr);
  return g->status;
}

/* Adds the metrics: sum of losses, and correct answers; in evaluation also the confusion matrix, unless there are many
 * classes or the answers are tokens, and correct answers among the top k. Tokens that the loss ignores do not count. */
static brim_status add_classification_metrics(brim_graph *g, const brim_graph_options *o)
{
  const bool is_tokens = g->task == BRIM_TASK_TOKENS;
  const bool confusion = !g->training && !is_tokens && g->classes < BRIM_MANY_CLASSES;
  const brim_attr attr = {.metrics = {.confusion = confusion,
                                      .top_k = top_k_of(g, o),
                                      .ignores = is_tokens && o->loss.attr.ignores,
                                      .ignore_index = o->loss.attr.ignore_index}};
  const int64_t cells = confusion ? g->classes * g->classes : 0;
  return add_metrics(g, "classification_metrics", 2 + cells + (attr.metrics.top_k > 0), &attr);
}

/* Adds the metrics: sum of losses, and absolute errors; in evaluation all errors. */
static brim_status add_regression_metrics(brim_graph *g)
{
  const brim_attr attr = {.metrics = {.errors = !g->training}};
  return add_metrics(g, "regression_metrics", g->training ? 2 : BRIM_ERRORS_COUNT(g->classes), &attr);
}

static void add_squares(brim_graph *g)
{
  const brim_shape one = {1, {1}};
  g->squares = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &one, "squares");
  brim_tensor *const in[] = {g->loss, g->squares};
  brim_graph_node_into(g, "squared_norm", "squares", in, 2, &g->squares, 1, NULL);
}

static brim_status add_loss(brim_graph *g, const brim_graph_options *o)
{
  if (!o->loss.built && can_hold_product(g, o)) return add_linear_loss(g, o);
  const brim_shape weight_shape = {1, {g->classes}};
  if (o->class_weights) g->class_weight = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &weight_shape, "class_weight");
  brim_tensor *const in[] = {g->output, g->label, g->class_weight};
  if (o->loss.built)
    BRIM_TRY(brim_graph_build_loss(g, o));
  else
    g->loss = brim_graph_apply(g, o->loss.op, "loss", in, o->class_weights ? 3 : 2, &(brim_attr){.loss = o->loss.attr});
  if (!g->loss) return g->status;
  if (o->squares) add_squares(g);
  return g->task == BRIM_TASK_VALUES ? add_regression_metrics(g) : add_classification_metrics(g, o);
}

/* Makes the label or target of each sample. */
static brim_tensor *new_label(brim_graph *g, const brim_graph_options *o)
{
  const bool is_soft = g->task == BRIM_TASK_CLASS && o->soft_labels && g->training;
  const bool is_real = g->task == BRIM_TASK_VALUES || is_soft;
  brim_shape shape = {1, {o->batch}};
  if (g->task == BRIM_TASK_TOKENS) shape = (brim_shape){2, {o->batch, o->sample.dim[0]}};
  if (is_real) shape = (brim_shape){2, {o->batch, o->classes}};
  return brim_graph_tensor(g, BRIM_ROLE_DATA, is_real ? o->real : BRIM_DTYPE_I32, &shape, "label");
}

static bool has_trained(const brim_graph *g)
{
  bool any = false;
  for (size_t i = 0; i < g->parameter_count; i++) any = any || !g->parameter[i].is_frozen;
  return any;
}

static void mark_local(brim_graph *g, const char *patterns)
{
  for (size_t i = 0; patterns && patterns[0] && i < g->parameter_count; i++)
    g->parameter[i].is_local = !g->parameter[i].is_frozen && brim_matches_any(patterns, g->parameter[i].value->name);
}

/* Adds the inputs: samples with their labels, or some tokens of texts with their places. */
static brim_status add_inputs(brim_graph *g, const brim_graph_options *o)
{
  brim_shape input = {o->sample.rank + 1, {o->batch}};
  for (int32_t d = 0; d < o->sample.rank; d++) input.dim[d + 1] = o->sample.dim[d];
  const bool generates = g->generation.capacity > 0;
  if (generates) input.dim[1] = g->generation.tokens;
  if (o->documents && !generates) input.dim[1] *= BRIM_DOCUMENT_ROWS;
  const uint32_t dtype = o->task == BRIM_TASK_TOKENS ? BRIM_DTYPE_I32 : o->real;
  g->input = brim_graph_tensor(g, BRIM_ROLE_DATA, dtype, &input, "input");
  if (generates)
    g->places = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &input, "places");
  else
    g->label = new_label(g, o);
  return o->documents && !generates ? brim_documents_open(g) : BRIM_OK;
}

/* Completes a graph that continues texts. */
static brim_status finish_generation(brim_graph *g, const brim_graph_options *o)
{
  if (g->generation.checks) return brim_generate_check(g);
  g->kept = g->generation.tokens == 1 ? g->output : NULL;
  brim_graph_fuse(g, o->fuse, o->offers, o->offers_arg);
  brim_graph_lower(g, o->activations);
  if (g->status == BRIM_OK) brim_generate_prune(g);
  g->forward_count = g->node_count;
  return g->status;
}

static brim_status build(const brim_graph_options *o, brim_graph *g)
{
  brim_long_call call;
  g->task = o->task;
  g->classes = o->classes;
  g->generation = o->generation;
  g->capacity = o->generation.capacity;
  g->offers = o->offers;
  g->offers_arg = o->offers_arg;
  BRIM_TRY(add_inputs(g, o));
  if (o->backbone) brim_wrap_open(g, o);
  brim_error_clear();
  brim_graph_lock_plugins();
  brim_long_call_begin(&call, "the model's build", (const void *)(uintptr_t)o->model->build);
  const brim_status status = o->model->build(o->model_self, g);
  brim_long_call_end(&call);
  brim_graph_unlock_plugins();
  if (g->status != BRIM_OK) return brim_fail(g->status, "%s", g->error);
  if (status != BRIM_OK && brim_error_text()[0]) return status;
  if (status != BRIM_OK)
    return brim_graph_fail(g, "build", NULL, "the model returned %s without a reason (brim_fail gives one)",
                           brim_status_name(status));
  mark_local(g, o->local);
  BRIM_TRY(brim_wrap_check(g));
  if (o->documents) BRIM_TRY(brim_documents_check(g));
  if (!g->output) return brim_graph_fail(g, "output", NULL, "the model named no output (brim_output)");
  if (o->keep_output) g->kept = g->output;
  if (o->keep_features) g->kept = brim_wrap_features(g);
  if (g->generation.capacity > 0) return finish_generation(g, o);
  BRIM_TRY(add_loss(g, o));
  if (o->keep_losses || o->keep_token_losses) g->kept = g->loss;
  if (o->keep_token_losses && !g->kept_answers) g->kept_answers = g->output;
  brim_graph_fuse(g, o->fuse, o->offers, o->offers_arg);
  brim_graph_lower(g, o->activations);
  if (o->training) {
    if (!has_trained(g)) return brim_graph_fail(g, "output", NULL, "the model has no parameters to train");
    BRIM_TRY(brim_autodiff_run(g, g->loss, NULL));
    BRIM_TRY(brim_graph_check_loss(g, o));
    brim_graph_widen_again(g);
    return g->status;
  }
  g->forward_count = g->node_count;
  return g->status;
}

brim_status brim_graph_build(const brim_graph_options *options, brim_graph **out)
{
  brim_graph *g = brim_graph_create(options->real, options->batch, options->training);
  brim_graph_options o = *options;
  if (o.keep_losses) { /* training may use another loss */
    o.loss = (brim_graph_loss){.op = "softmax_cross_entropy", .attr = {.ignores = 1, .ignore_index = BRIM_NO_TOKEN}};
    o.class_weights = false;
  }
  if (o.norm_group > 0) g->norm_group = o.norm_group;
  g->folds_later = o.folds_later;
  const brim_status status = build(&o, g);
  if (status != BRIM_OK) {
    brim_graph_free(g);
    return status;
  }
  g->file = "";
  *out = g;
  return BRIM_OK;
}
