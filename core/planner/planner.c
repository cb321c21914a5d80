/* Makes the plans of a setup. See planner.h. */
#include "planner/planner.h"

#include "brim/selector.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/process.h"
#include "memory/choose.h"
#include "planner/figures.h"
#include "planner/headroom.h"
#include "planner/room.h"

bool brim_choice_equal(const brim_choice *a, const brim_choice *b)
{
  const bool asks = a->recompute == BRIM_RECOMPUTE_AUTO;
  return a->micro_batch == b->micro_batch && a->precision == b->precision && a->recompute == b->recompute &&
         a->lanes == b->lanes && (!asks || a->within_bytes == b->within_bytes);
}

void brim_choice_print_change(const brim_choice *from, const brim_choice *to, char *out, size_t room)
{
  char batch[64], lanes[64];
  snprintf(batch, sizeof batch, "micro-batch %lld -> %lld", (long long)from->micro_batch, (long long)to->micro_batch);
  snprintf(lanes, sizeof lanes, "%d -> %d clients at a time", (int)from->lanes, (int)to->lanes);
  const bool has_lanes = from->lanes != to->lanes, has_batch = !has_lanes || from->micro_batch != to->micro_batch;
  snprintf(out, room, "%s%s%s", has_lanes ? lanes : "", has_lanes && has_batch ? ", " : "", has_batch ? batch : "");
}

brim_choice brim_choice_cut(const brim_choice *choice, int64_t micro_batch)
{
  brim_choice out = *choice;
  out.micro_batch = micro_batch;
  return out;
}

/* ---- cache of peaks: a plan is a function of its device and choice ---- */

#define REMEMBERED 512 /* number of peaks in the cache: enough for all micro-batches with several budgets */

typedef struct peak {
  brim_choice choice;
  int device;
  uint64_t bytes;
} peak;

struct brim_peaks {
  peak item[REMEMBERED];
  size_t count, next; /* next: the entry to replace */
};

/* Whether two choices have the same peak. recompute=auto takes the first level that fits. So a budget between a plan's
 * peak and the plan's own budget leads to the same plan. If a plan's peak exceeds its budget, no level fits, and any
 * budget below that peak leads to the same plan. */
static bool has_peak_of(const peak *known, const brim_choice *c)
{
  const uint64_t most = known->choice.within_bytes > known->bytes ? known->choice.within_bytes : known->bytes - 1;
  const uint64_t least = known->choice.within_bytes >= known->bytes ? known->bytes : 0;
  brim_choice same = *c;
  same.within_bytes = known->choice.within_bytes;
  return brim_choice_equal(&known->choice, &same) &&
         (c->recompute != BRIM_RECOMPUTE_AUTO || (least <= c->within_bytes && c->within_bytes <= most));
}

/* Looks a peak up in the cache; false if it has not been computed yet. */
static bool find_peak(const brim_peaks *p, int device, const brim_choice *choice, uint64_t *bytes)
{
  for (size_t i = 0; p && i < p->count; i++) {
    if (p->item[i].device != device || !has_peak_of(&p->item[i], choice)) continue;
    *bytes = p->item[i].bytes;
    return true;
  }
  return false;
}

static void keep_peak(brim_peaks *p, int device, const brim_choice *choice, uint64_t bytes)
{
  uint64_t known;
  if (!p || find_peak(p, device, choice, &known)) return;
  if (p->count < REMEMBERED) p->count++;
  p->item[p->next] = (peak){*choice, device, bytes};
  p->next = (p->next + 1) % REMEMBERED;
}

/* ---- opening ---- */

void brim_planner_open(brim_planner *p, const brim_setup *setup)
{
  *p = (brim_planner){.setup = setup,
                      .peaks = brim_xcalloc(1, sizeof(brim_peaks)),
                      .plans = brim_plans_create(),
                      .levels = brim_xcalloc(1, sizeof(brim_recompute_cache))};
}

void brim_planner_close(brim_planner *p)
{
  brim_profile_close(p->profile);
  brim_plans_free(p->plans);
  if (p->levels) brim_recompute_cache_release(p->levels);
  free(p->levels);
  free(p->peaks);
  *p = (brim_planner){0};
}

brim_status brim_planner_select(brim_planner *p, int device)
{
  brim_plans_clear(p->plans);
  p->device = device;
  brim_profile_close(p->profile);
  p->profile = NULL;
  return brim_device_select(p->setup->backend_ops, p->setup->backend, device, &p->device_info);
}

brim_status brim_planner_look(brim_planner *p)
{
  return p->setup->backend_ops->describe(p->setup->backend, p->device, &p->device_info);
}

void brim_planner_keep_no_plans(brim_planner *p)
{
  brim_plans_free(p->plans);
  p->plans = NULL;
}

void brim_planner_forget(brim_planner *p)
{
  brim_plans_clear(p->plans);
  p->micro_batch_count = 0;
  p->peaks->count = p->peaks->next = 0;
}

brim_claim_request brim_planner_claim_request(const brim_planner *p, const brim_device_wish *wish, uint64_t need_bytes,
                                              bool waits)
{
  const brim_setup *setup = p->setup;
  return (brim_claim_request){.backend = brim_setup_backend_id(setup),
                              .ops = setup->backend_ops,
                              .self = setup->backend,
                              .wish = *wish,
                              .need_bytes = need_bytes + brim_planner_headroom(p, &p->device_info),
                              .wait = waits || setup->options.dist,
                              .timeout_seconds =
                                  waits ? 60 * setup->settings->gpu_wait_timeout_minutes : BRIM_CLAIM_TURN_SECONDS,
                              .interval_seconds = setup->settings->gpu_check_interval_seconds,
                              .stop = setup->options.stop};
}

uint64_t brim_planner_budget(const brim_planner *p, const brim_choice *choice)
{
  const uint64_t set = p->setup->settings->memory.recompute_budget_mb << 20;
  const uint64_t budget = choice->within_bytes ? choice->within_bytes : set ? set : brim_planner_room(p, true);
  return budget + (budget == 0);
}

static int32_t limit_lanes(const brim_planner *p, int64_t lanes)
{
  const int64_t ranks = p->setup->world.ranks, clients = (p->setup->settings->clients_per_round + ranks - 1) / ranks;
  if (!brim_setup_is_federated(p->setup)) return 0;
  if (brim_setup_is_isolated(p->setup)) return brim_setup_own_client(p->setup) < 0 ? 0 : 1;
  if (!BRIM_HAS(brim_backend_ops, p->setup->backend_ops, lane)) lanes = 1;
  if (lanes > clients) lanes = clients;
  return lanes < 1 ? 1 : (int32_t)lanes;
}

int32_t brim_planner_lanes_useful(const brim_planner *p)
{
  return limit_lanes(p, p->device_info.on_host ? p->device_info.threads : BRIM_LANES_OF_GPU);
}

int32_t brim_planner_lanes(const brim_planner *p)
{
  const int64_t asked = p->setup->settings->parallel_clients;
  return asked < 0 ? brim_planner_lanes_useful(p) : limit_lanes(p, asked);
}

/* ---- micro-batches of a step ---- */

static int descending(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static void add_micro_batch(brim_planner *p, int64_t batch, bool multiples)
{
  const int64_t share = brim_setup_share(p->setup), grain = p->setup->grain;
  const bool own =
      batch ==
      p->setup->settings->training.batch_size; /* the user's choice, which may differ from all multiples of the grain */
  if (batch > BRIM_MICRO_BATCH_MAX || p->micro_batch_count == BRIM_MICRO_BATCHES_MAX) return;
  if (batch < p->setup->settings->min_batch_size && batch < share && !own) return;
  if (!brim_setup_allows(p->setup, batch)) return;
  if (multiples && batch % grain != 0 && batch >= grain && batch != share && !own) return;
  p->micro_batch[p->micro_batch_count++] = batch;
}

/* No micro-batch is larger than the rank's share of a step; the share itself is allowed even if it does not divide the
 * effective batch. */
size_t brim_planner_list_cuts(brim_planner *p)
{
  const int64_t effective = p->setup->settings->training.effective_batch_size, share = brim_setup_share(p->setup);
  const bool multiples = p->setup->grain > 1 && effective % p->setup->grain == 0;
  if (p->micro_batch_count > 0) return p->micro_batch_count;
  add_micro_batch(p, share > 0 ? share : brim_setup_limit_batch(p->setup, brim_setup_micro_batch(p->setup)), multiples);
  for (int64_t k = 1; k * k <= effective; k++) {
    if (effective % k != 0) continue;
    if (k < share) add_micro_batch(p, k, multiples);
    if (k != effective / k && effective / k < share) add_micro_batch(p, effective / k, multiples);
  }
  qsort(p->micro_batch, p->micro_batch_count, sizeof *p->micro_batch, descending);
  return p->micro_batch_count;
}

/* ---- plans ---- */

static brim_plan_request make_request(const brim_planner *p, const brim_choice *choice)
{
  const brim_setup *setup = p->setup;
  return (brim_plan_request){.graph = brim_setup_graph_options(setup, choice->precision),
                             .backend = setup->backend_ops,
                             .backend_self = setup->backend,
                             .grain = setup->grain,
                             .recompute = (enum brim_recompute_kind)choice->recompute,
                             .levels = p->levels,
                             .world = setup->world,
                             .shard = (uint32_t)setup->settings->dist.shard,
                             .bucket_bytes = setup->settings->dist.bucket_mb << 20,
                             .budget_bytes = brim_planner_budget(p, choice)};
}

/* Adds a batch shape unless it exists. */
static void add_shape(brim_plan_request *r, enum brim_program_kind kind, int64_t batch)
{
  bool known = batch == 0;
  for (size_t k = 0; k < r->shape_count; k++) known = known || (r->shape[k].kind == kind && r->shape[k].batch == batch);
  if (!known) r->shape[r->shape_count++] = (brim_batch_shape){kind, batch};
}

/* Adds the shapes for evaluating `count` samples. */
static void add_evaluation(brim_plan_request *r, int64_t count, int64_t batch)
{
  if (count >= batch) add_shape(r, BRIM_PROGRAM_EVALUATE, batch);
  add_shape(r, BRIM_PROGRAM_EVALUATE, count % batch);
}

/* A rank without samples of a part still takes part in the evaluation's sums, so it needs a shape too. */
static void add_part(const brim_planner *p, brim_plan_request *r, enum brim_part part, int64_t batch)
{
  int64_t first, count;
  brim_setup_part(p->setup, part, &first, &count);
  add_evaluation(r, count == 0 && p->setup->data.count[part] > 0 ? 1 : count, batch);
}

/* Adds the rank's micro-batches; `alone`: without the remainder. A rank without samples still has gradients and the
 * update. */
static void add_training(brim_plan_request *r, const brim_order *order, bool alone)
{
  int64_t size[BRIM_ORDER_SIZES];
  const size_t count = brim_order_sizes(order, size);
  if (alone || count == 0) add_shape(r, BRIM_PROGRAM_TRAIN, order->batch);
  for (size_t i = 0; i < count && !alone; i++) add_shape(r, BRIM_PROGRAM_TRAIN, size[i]);
}

/* Sets the options of an optimizer's update that follow from the run. */
static void describe_update(const brim_planner *p, const brim_choice *choice, brim_plan_request *r)
{
  const brim_training_settings *t = &p->setup->settings->training;
  const bool is_weighted = p->setup->label_weights.count > 0 || p->setup->data.train.task == BRIM_TASK_TOKENS;
  brim_optimizer_describe(p->setup->optimizer->ops, p->setup->optimizer_params, &r->update);
  r->update.in_backward = brim_setup_updates_in_backward(p->setup);
  r->update.offloaded = p->setup->settings->memory.offload == BRIM_OFFLOAD_OPTIMIZER;
  r->update.checked = choice->precision == BRIM_PRECISION_FP16;
  r->update.scaled = t->clip_norm > 0 || is_weighted || r->update.checked;
  r->update.ema_decay = t->ema_decay;
  r->update.max_norm = t->clip_norm;
}

/* A client's training. */
static brim_plan_request make_client_request(const brim_planner *p, const brim_choice *choice)
{
  int64_t size[BRIM_PROGRAMS_MAX];
  brim_plan_request client = make_request(p, choice);
  describe_update(p, choice, &client);
  client.graph.squares = brim_setup_selector_needs(p->setup, BRIM_NEED_SQUARES);
  client.update.controlled = brim_setup_has_controls(p->setup);
  client.update.steered = client.update.controlled || brim_setup_mu(p->setup) > 0 || brim_setup_is_ditto(p->setup);
  client.world = (brim_world){.ranks = 1, .local_ranks = 1}; /* the ranks add up only the server's sums */
  client.accumulates = choice->micro_batch < p->setup->settings->training.effective_batch_size;
  const size_t sizes = brim_setup_client_sizes(p->setup, choice->micro_batch, size);
  for (size_t i = 0; i < sizes; i++) add_shape(&client, BRIM_PROGRAM_TRAIN, size[i]);
  const bool evaluates = brim_setup_needs_losses(p->setup) || brim_setup_scores_clients(p->setup);
  for (size_t i = 0; i < sizes && evaluates; i++) add_shape(&client, BRIM_PROGRAM_EVALUATE, size[i]);
  return client;
}

brim_status brim_planner_plan_client(const brim_planner *p, const brim_choice *choice, void *backend, brim_plan **out)
{
  brim_plan_request client = make_client_request(p, choice);
  client.backend_self = backend;
  return brim_plan_create(&client, out);
}

/* Plans the server with its lanes; `alone`: plans one lane that stands for all. */
static brim_status plan_federation(const brim_planner *p, const brim_choice *choice, bool alone, brim_plan **out)
{
  const brim_setup *s = p->setup;
  const int64_t batch = choice->micro_batch, eval_batch = brim_setup_eval_batch(s, batch);
  brim_plan_request client = make_client_request(p, choice), server = make_request(p, choice);
  brim_optimizer_describe(s->server_optimizer->ops, s->server_params, &server.update);
  server.update.controlled = brim_setup_has_controls(s);
  server.recompute = BRIM_RECOMPUTE_NONE;
  server.client = &client;
  server.keep_answers = brim_setup_keeps_answers(s);
  server.keep_token_losses = brim_setup_keeps_token_losses(s);
  server.lanes = choice->lanes;
  server.plans_one_lane = alone;
  if (!brim_setup_is_isolated(s) || brim_setup_own_client(s) < 0) {
    add_part(p, &server, BRIM_PART_VALIDATION, eval_batch);
    add_part(p, &server, BRIM_PART_TEST, eval_batch);
  }
  if (server.shape_count == 0) add_shape(&server, BRIM_PROGRAM_EVALUATE, 1); /* holds the parameters */
  return brim_plan_create(&server, out);
}

/* The context of a GPU belongs to the calling thread. */
bool brim_planner_may_plan_together(const brim_planner *p)
{
  if (brim_fault_text()) return false; /* injected faults count calls in their order */
  return !brim_setup_is_federated(p->setup) && (p->device_info.on_host || brim_setup_is_described(p->setup));
}

static brim_plan_request make_training_request(const brim_planner *p, const brim_choice *choice, int64_t batch,
                                               bool alone)
{
  const int64_t eval_batch = brim_setup_eval_batch(p->setup, batch);
  const brim_order order = brim_setup_order(p->setup, batch);
  brim_plan_request r = make_request(p, choice);
  r.keep_answers = brim_setup_keeps_answers(p->setup);
  r.keep_token_losses = brim_setup_keeps_token_losses(p->setup);
  describe_update(p, choice, &r);
  r.accumulates = order.micros > 1 || order.last_micros > 1;
  add_training(&r, &order, alone);
  if (!alone) add_part(p, &r, BRIM_PART_VALIDATION, eval_batch);
  if (!alone) add_part(p, &r, BRIM_PART_TEST, eval_batch);
  return r;
}

brim_status brim_planner_plan(const brim_planner *p, const brim_choice *choice, bool alone, brim_plan **out)
{
  const int64_t batch = brim_setup_limit_batch(p->setup, choice->micro_batch);
  if (!brim_setup_allows(p->setup, batch) && brim_setup_updates_in_backward(p->setup))
    return brim_setup_refuse_accumulation(p->setup, batch);
  if (!brim_setup_allows(p->setup, batch))
    return brim_fail(BRIM_ECONFIG,
                     "training.batch_size %lld is not a multiple of training.norm_group %lld, but the model has batch "
                     "norm: its statistics are taken over whole groups, so that they do not depend on the "
                     "micro-batch\nchange one of the two, or set training.gradient_accumulation_steps=1",
                     (long long)batch, (long long)p->setup->norm_group);
  if (brim_setup_is_federated(p->setup)) return plan_federation(p, choice, alone, out);
  const brim_plan_request r = make_training_request(p, choice, batch, alone);
  BRIM_TRY(brim_plans_get(p->plans, &r, choice->precision, out));
  if (alone) return BRIM_OK;
  brim_choice c = *choice;
  c.micro_batch = batch;
  c.within_bytes = r.budget_bytes;
  keep_peak(p->peaks, p->device, &c, (*out)->peak_bytes);
  return BRIM_OK;
}

void brim_planner_plan_next(const brim_planner *p, const brim_choice *choice, size_t count)
{
  brim_plans_next next[BRIM_PLANNER_NEXT];
  size_t used = 0;
  if (!p->plans || p->model || !brim_planner_may_plan_together(p)) return;
  for (size_t i = 0; i < count && used < BRIM_PLANNER_NEXT; i++) {
    const int64_t batch = brim_setup_limit_batch(p->setup, choice[i].micro_batch);
    if (!brim_setup_allows(p->setup, batch)) continue;
    next[used++] = (brim_plans_next){make_training_request(p, &choice[i], batch, false), choice[i].precision};
  }
  brim_plans_make_next(p->plans, next, used);
}

brim_status brim_planner_plan_evaluation(const brim_planner *p, const brim_choice *choice,
                                         const brim_evaluation_wish *wish, brim_plan **out)
{
  brim_plan_request r = make_request(p, choice);
  r.graph.keep_output = wish->keep_output;
  r.graph.keep_features = wish->keep_features;
  r.graph.keep_losses = wish->keep_losses;
  if (wish->capacity == 0) {
    add_evaluation(&r, wish->count, wish->batch);
    return brim_plan_create(&r, out);
  }
  r.graph.generation = (brim_generation){.capacity = wish->capacity, .chunk = wish->chunk > 0 ? wish->chunk : 1};
  r.shape[r.shape_count++] = (brim_batch_shape){BRIM_PROGRAM_GENERATE, wish->batch, 1};
  if (wish->chunk > 1) r.shape[r.shape_count++] = (brim_batch_shape){BRIM_PROGRAM_GENERATE, wish->batch, wish->chunk};
  return brim_plan_create(&r, out);
}

brim_status brim_planner_check_generation(const brim_planner *p, const brim_choice *choice, int64_t length)
{
  brim_graph_options options = brim_setup_graph_options(p->setup, choice->precision);
  brim_graph *g = NULL;
  options.batch = 1;
  options.generation = (brim_generation){.capacity = length, .chunk = length, .tokens = length, .checks = true};
  const brim_status status = brim_graph_build(&options, &g);
  if (status == BRIM_OK) brim_graph_free(g);
  return status == BRIM_EINVAL ? BRIM_ENOTSUP : status;
}

brim_status brim_planner_peak(const brim_planner *p, const brim_choice *choice, uint64_t *bytes)
{
  brim_choice c = *choice;
  brim_plan *plan = NULL;
  brim_figures f = {0};
  c.within_bytes = brim_planner_budget(p, choice);
  if (p->model) {
    BRIM_TRY(p->model->figures(p->model->context, &c, &f));
    *bytes = f.peak_bytes;
    return BRIM_OK;
  }
  if (find_peak(p->peaks, p->device, &c, bytes)) return BRIM_OK;
  BRIM_TRY(brim_planner_plan(p, &c, brim_setup_is_federated(p->setup), &plan));
  *bytes = plan->peak_bytes;
  brim_plan_free(plan);
  keep_peak(p->peaks, p->device, &c, *bytes);
  return BRIM_OK;
}
