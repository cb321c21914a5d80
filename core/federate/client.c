#include "federate/client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "brim/selector.h"
#include "federate/attack.h"
#include "federate/fold.h"
#include "graph/federate.h"

/* Streams of BRIM_STREAM_CLIENT: seeds of the steps of personal models, and of training before the last evaluation. */
#define PERSONAL_STREAM 4
#define FINETUNE_STREAM 5

static uint64_t values_bytes(const brim_setup *s)
{
  return brim_data_values_bytes(&s->data, s->backend_ops->real);
}

static uint64_t label_bytes(const brim_setup *s)
{
  return brim_data_label_bytes(&s->data, BRIM_PART_TRAIN, s->backend_ops->real);
}

brim_status brim_lane_open(brim_lane *l, const brim_drive *drive, brim_exec *exec, brim_kept *kept)
{
  const brim_setup *s = drive->setup;
  const brim_plan *plan = brim_exec_plan(exec);
  const uint64_t most = (uint64_t)brim_setup_client_batch_max(s, drive->choice.micro_batch);
  *l = (brim_lane){
      .drive = drive,
      .exec = exec,
      .kept = kept,
      .adopt = brim_plan_program(plan, BRIM_PROGRAM_ADOPT, 0),
      .distance = brim_plan_program(plan, BRIM_PROGRAM_DISTANCE, 0),
      .fold = brim_plan_program(plan, BRIM_PROGRAM_FOLD, 0),
      .fold_control = brim_plan_program(plan, BRIM_PROGRAM_FOLD_CONTROL, 0),
      .update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0),
      .batch = {.values = brim_try_malloc(most * values_bytes(s)), .labels = brim_try_malloc(most * label_bytes(s))},
      .scratch = brim_try_malloc(s->data.scratch_bytes)};
  const bool reads = brim_setup_reads_updates(s);
  const size_t largest = (size_t)brim_graph_largest(l->adopt->graph, false);
  if (reads) l->values = brim_try_malloc(2 * largest * brim_dtype_bytes(s->backend_ops->real));
  if (kept) l->keeping = brim_try_malloc(s->kept_scratch_bytes);
  BRIM_TRY(brim_compressor_open(s, l->fold, &l->compressor));
  if (l->batch.values && l->batch.labels && l->scratch && (l->values || !reads) && (l->keeping || !kept))
    return brim_client_order_open(&s->partition, &l->order);
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the samples of a client");
}

void brim_lane_close(brim_lane *l)
{
  free(l->batch.values);
  free(l->batch.labels);
  free(l->scratch);
  free(l->values);
  free(l->keeping);
  brim_client_order_close(&l->order);
  brim_compressor_close(&l->compressor);
  *l = (brim_lane){0};
}

/* ---- training ---- */

/* The training of one client in a round. */
typedef struct turn {
  brim_lane *lane;
  brim_client_result *result;
  brim_attacker attacker; /* if it is malicious */
  uint64_t seed;
  double factor; /* factor of the schedule, which counts rounds */
  int64_t steps; /* taken so far */
  double rates;  /* the sum of the learning rates of these steps */
  double pull;   /* weight of the distance from the global model */
  double steer;  /* factor of the control: 1, or 0 for a personal model, which has none */
} turn;

/* Reads samples from..from+count-1 of a local epoch. */
static brim_status read_batch(const turn *t, int64_t epoch, int64_t from, int64_t count)
{
  const brim_lane *l = t->lane;
  const brim_setup *s = l->drive->setup;
  const uint64_t values = values_bytes(s), labels = label_bytes(s);
  t->lane->batch.span = (brim_span){BRIM_PART_TRAIN, epoch, from, count};
  for (int64_t i = 0; i < count; i++)
    BRIM_TRY(brim_data_client_sample(&s->data, &l->order, from + i, s->backend_ops->real, l->scratch,
                                     (char *)l->batch.values + (uint64_t)i * values,
                                     (char *)l->batch.labels + (uint64_t)i * labels));
  if (t->result->is_malicious) brim_attack_labels(&t->attacker, l->batch.labels, count);
  return BRIM_OK;
}

/* Trains on samples from..from+count-1 of a local epoch. */
static brim_status make_step(turn *t, int64_t epoch, int64_t from, int64_t count)
{
  const brim_lane *l = t->lane;
  const brim_setup *s = l->drive->setup;
  const double losses = (double)(count * brim_setup_losses_each(s));
  double counted = 0, tokens = 0;
  brim_step step = {.seed = t->seed,
                    .step = (uint64_t)t->steps++,
                    .loss_scale = 1 / losses,
                    .norm_groups = brim_setup_norm_groups(s, count),
                    .gradient_scale = 1};
  BRIM_TRY(brim_optimizer_fill(s->optimizer, s->optimizer_params, t->factor, &step));
  BRIM_TRY(brim_exec_zero_gradients(l->exec));
  for (int64_t at = 0; at < count; at += l->batch.span.count) {
    BRIM_TRY(read_batch(t, epoch, from + at, brim_setup_client_micro(s, l->drive->choice.micro_batch, count - at)));
    const brim_program *program = brim_plan_program(brim_exec_plan(l->exec), BRIM_PROGRAM_TRAIN, l->batch.span.count);
    brim_setup_weigh(s, &l->batch, &counted, &tokens);
    /* With optimizer.update=fused_backward, the last micro-batch of a step updates in its backward pass; the weight
     * of all labels is known by then. */
    if (at + l->batch.span.count == count) step.gradient_scale = counted > 0 ? losses / counted : 0;
    if (step.gradient_scale > 0) step.federated = t->pull / step.gradient_scale;
    if (step.gradient_scale > 0) step.control = t->steer / step.gradient_scale;
    step.first_sample = at;
    BRIM_TRY(brim_exec_load(l->exec, program, l->batch.values, l->batch.labels));
    BRIM_TRY(brim_exec_run(l->exec, program, &step, NULL));
  }
  BRIM_TRY(brim_exec_run(l->exec, l->update, &step, NULL));
  t->rates += step.lr;
  t->result->samples += count;
  t->result->counted += counted;
  t->result->tokens += tokens;
  return BRIM_OK;
}

static brim_status make_epoch(turn *t, int64_t epoch)
{
  const brim_setup *s = t->lane->drive->setup;
  const int64_t full = s->settings->training.effective_batch_size,
                samples = brim_setup_client_samples(s, brim_partition_count(&s->partition, t->result->client));
  brim_client_order_make(&t->lane->order, &s->partition, t->result->client, epoch);
  for (int64_t at = 0; at < samples; at += full)
    BRIM_TRY(make_step(t, epoch, at, samples - at < full ? samples - at : full));
  return BRIM_OK;
}

/* Adds up the update's values, each with a pseudo-random sign, at a pseudo-random index (Charikar, Chen, Farach-Colton:
 * Finding Frequent Items in Data Streams, ICALP 2002). */
static brim_status make_sketch(const turn *t)
{
  const brim_lane *l = t->lane;
  const brim_graph *g = l->fold->graph;
  float *sketch = t->result->sketch;
  if (!sketch) return BRIM_OK;
  memset(sketch, 0, BRIM_SKETCH * sizeof *sketch);
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_tensor *own = g->node[i]->in[0], *global = g->node[i]->in[1];
    const int64_t count = brim_shape_count(&own->shape);
    float *at = l->values, *from = at + count;
    BRIM_TRY(brim_exec_read_as(l->exec, l->fold, own, BRIM_DTYPE_F32, at));
    BRIM_TRY(brim_exec_read_as(l->exec, l->fold, global, BRIM_DTYPE_F32, from));
    brim_philox four = {{0}};
    for (int64_t k = 0; k < count; k++) {
      if (k % 4 == 0) four = brim_random4(i, BRIM_STREAM_SELECT, 1, (uint64_t)k / 4, 0);
      const uint32_t r = four.v[k % 4];
      sketch[r % BRIM_SKETCH] += r >> 31 ? from[k] - at[k] : at[k] - from[k];
    }
  }
  return BRIM_OK;
}

/* Measures the distance that the client has moved, and checks that its update can be folded. */
static brim_status measure(turn *t)
{
  const brim_lane *l = t->lane;
  double distance[2], metrics[2];
  BRIM_TRY(brim_exec_metrics(l->exec, brim_exec_plan(l->exec)->program, metrics, 2));
  BRIM_TRY(brim_exec_run(l->exec, l->distance, &(brim_step){.federated = 1}, NULL));
  BRIM_TRY(brim_exec_read(l->exec, l->distance, l->distance->graph->kept, distance));
  t->result->loss = metrics[0];
  t->result->correct = metrics[1];
  t->result->norm = sqrt(distance[0]);
  const brim_program *train = brim_exec_plan(l->exec)->program;
  t->result->squares = NAN;
  if (train->graph->squares) BRIM_TRY(brim_exec_read(l->exec, train, train->graph->squares, &t->result->squares));
  t->result->rates = brim_control_rates(l->drive->setup, t->rates);
  const double slope = l->fold_control ? distance[1] / t->result->rates : 0; /* NAN if all rates are 0 */
  if (isfinite(metrics[0]) && isfinite(distance[0]) && distance[1] < BRIM_FOLD_MOST && slope < BRIM_FOLD_MOST)
    return make_sketch(t);
  if (!isfinite(distance[0]))
    return brim_fail(BRIM_ENUMERIC, "client %lld has diverged: its parameters are not finite",
                     (long long)t->result->client);
  if (!isfinite(metrics[0]))
    return brim_fail(BRIM_ENUMERIC, "client %lld has diverged: its loss is not finite", (long long)t->result->client);
  if (!(distance[1] < BRIM_FOLD_MOST))
    return brim_fail(BRIM_ENUMERIC, "client %lld has diverged: a parameter moved by %.3g; the limit is %g",
                     (long long)t->result->client, distance[1], BRIM_FOLD_MOST);
  return brim_fail(BRIM_ENUMERIC, "client %lld has diverged: its %s has a value of %.3g; the limit is %g",
                   (long long)t->result->client,
                   brim_setup_is_feddyn(l->drive->setup) ? "update times federate.alpha" : "mean gradient", slope,
                   BRIM_FOLD_MOST);
}

/* Writes the class weights to the lane, because other programs of the round may have overwritten them. */
static brim_status write_class_weights(const brim_lane *l)
{
  const brim_program *p = brim_exec_plan(l->exec)->program;
  const brim_setup *s = l->drive->setup;
  const brim_tensor *w = p->graph->class_weight;
  return w ? brim_exec_write_as(l->exec, p, w, BRIM_DTYPE_F64, s->class_weights.item) : BRIM_OK;
}

static brim_keeping keeping_of(const brim_lane *l, const brim_client_result *result)
{
  return (brim_keeping){l->exec, l->adopt, l->update, l->keeping, result->client, result->place};
}

/* Loads the global model and the client's state. */
static brim_status adopt(const brim_lane *l, const brim_keeping *own)
{
  BRIM_TRY(brim_exec_run(l->exec, l->adopt, &(brim_step){.federated = 1}, NULL));
  return brim_kept_write(l->kept, own);
}

brim_status brim_lane_keep(brim_lane *l, const brim_client_result *result, int64_t round)
{
  const brim_keeping own = keeping_of(l, result);
  return brim_kept_stage(l->kept, &own, round, result->rates);
}

/* Reads the accuracy over the training since the metrics were zeroed; NAN for real targets. */
static brim_status take_accuracy(const brim_lane *l, const brim_client_result *result, double *out)
{
  const int32_t task = l->drive->setup->data.train.task;
  double metrics[2];
  BRIM_TRY(brim_exec_metrics(l->exec, brim_exec_plan(l->exec)->program, metrics, 2));
  *out = task == BRIM_TASK_VALUES ? NAN
                                  : metrics[1] / (task == BRIM_TASK_TOKENS ? result->tokens : (double)result->samples);
  return BRIM_OK;
}

/* Trains the client's personal model (Ditto: Li et al., Fair and Robust Federated Learning Through Personalization,
 * ICML 2021, algorithm 1), and stages it. The personal model starts as the global model of the client's first round. It
 * depends on the global model and not on the client's update, so it can be trained first, while the lane is free. */
static brim_status train_personal(const turn *of, const brim_keeping *own, int64_t round)
{
  const brim_lane *l = of->lane;
  const brim_setup *s = l->drive->setup;
  const int64_t epochs = s->settings->federate.personal_epochs;
  const brim_philox key = brim_random4((uint64_t)s->settings->seed, BRIM_STREAM_CLIENT, PERSONAL_STREAM,
                                       (uint64_t)own->client, (uint32_t)round);
  brim_client_result result = {.client = own->client, .is_malicious = of->result->is_malicious};
  turn t = {.lane = of->lane,
            .result = &result,
            .attacker = of->attacker,
            .seed = (uint64_t)key.v[0] << 32 | key.v[1],
            .factor = of->factor,
            .pull = s->settings->federate.personal_lambda};
  BRIM_TRY(adopt(l, own));
  BRIM_TRY(brim_kept_write_personal(l->kept, own));
  BRIM_TRY(brim_exec_zero_states(l->exec));
  BRIM_TRY(brim_exec_zero_metrics(l->exec));
  for (int64_t e = 0; e < epochs; e++) BRIM_TRY(make_epoch(&t, round * epochs + e));
  BRIM_TRY(take_accuracy(l, &result, &of->result->personal));
  return brim_kept_stage_personal(l->kept, own);
}

brim_status brim_lane_train(brim_lane *l, int64_t round, brim_client_result *result)
{
  const brim_setup *s = l->drive->setup;
  const int64_t epochs = s->settings->federate.local_epochs;
  const brim_philox key =
      brim_random4((uint64_t)s->settings->seed, BRIM_STREAM_CLIENT, 0, (uint64_t)result->client, (uint32_t)round);
  const brim_keeping own = keeping_of(l, result);
  turn t = {.lane = l,
            .result = result,
            .attacker = {s, result->client, round},
            .seed = (uint64_t)key.v[0] << 32 | key.v[1],
            .pull = brim_setup_mu(s),
            .steer = 1};
  BRIM_TRY(brim_schedule_factor(s->schedule, s->schedule_params, result->version, l->drive->order.steps, &t.factor));
  if (brim_fault_hit(BRIM_FAULT_CLIENT, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE, "client %lld failed: injected by %s", (long long)result->client,
                     BRIM_FAULT_ENVIRONMENT);
  BRIM_TRY(write_class_weights(l));
  BRIM_TRY(brim_kept_check(l->kept, result->client));
  BRIM_TRY(brim_kept_begin(l->kept, &own));
  if (brim_setup_is_ditto(s)) BRIM_TRY(train_personal(&t, &own, round));
  BRIM_TRY(adopt(l, &own));
  BRIM_TRY(brim_exec_zero_states(l->exec));
  BRIM_TRY(brim_kept_steer(l->kept, &own));
  BRIM_TRY(brim_exec_zero_metrics(l->exec));
  for (int64_t e = 0; e < epochs; e++) BRIM_TRY(make_epoch(&t, round * epochs + e));
  if (result->is_malicious) BRIM_TRY(brim_attack_update(&t.attacker, l->exec, l->adopt, l->values));
  BRIM_TRY(brim_compressor_run(&l->compressor, l->kept, &own, l->fold, round));
  return measure(&t);
}

/* Runs the client's training batches with the model in the lane, forward only. metrics: the sums of losses and of
 * correct answers; *counted: the weight of the losses. */
static brim_status run_batches(brim_lane *l, brim_client_result *client, bool is_plain, double metrics[2],
                               double *counted)
{
  const brim_setup *s = l->drive->setup;
  const int64_t samples = brim_setup_client_samples(s, brim_partition_count(&s->partition, client->client)),
                full = s->settings->training.effective_batch_size;
  const turn t = {.lane = l, .result = client, .attacker = {s, client->client, 0}};
  double tokens = 0;
  *counted = 0;
  BRIM_TRY(brim_exec_zero_metrics(l->exec));
  brim_client_order_make(&l->order, &s->partition, client->client, is_plain ? BRIM_EPOCH_PLAIN : 0);
  for (int64_t at = 0; at < samples; at += l->batch.span.count) {
    const int64_t left = (samples - at < full - at % full ? samples - at : full - at % full);
    BRIM_TRY(read_batch(&t, 0, at, brim_setup_client_micro(s, l->drive->choice.micro_batch, left)));
    const brim_program *program =
        brim_plan_program(brim_exec_plan(l->exec), BRIM_PROGRAM_EVALUATE, l->batch.span.count);
    brim_setup_weigh(s, &l->batch, counted, &tokens);
    BRIM_TRY(brim_exec_load(l->exec, program, l->batch.values, l->batch.labels));
    BRIM_TRY(brim_exec_run(l->exec, program, &(brim_step){.loss_scale = 1}, NULL));
  }
  return brim_exec_metrics(l->exec, brim_exec_plan(l->exec)->program, metrics, 2);
}

/* Loads the global model, with the client's own parameters, and perhaps its personal model. */
static brim_status load_client(brim_lane *l, const brim_client_result *client, bool is_personal)
{
  const brim_keeping own = keeping_of(l, client);
  BRIM_TRY(write_class_weights(l));
  BRIM_TRY(brim_kept_check(l->kept, client->client));
  BRIM_TRY(adopt(l, &own));
  return is_personal ? brim_kept_write_personal(l->kept, &own) : BRIM_OK;
}

/* Computes the accuracy on the client's samples without augmentation. */
static brim_status find_accuracy(brim_lane *l, brim_client_result *client, double *accuracy)
{
  const brim_setup *s = l->drive->setup;
  double metrics[2], counted;
  BRIM_TRY(run_batches(l, client, true, metrics, &counted));
  *accuracy = metrics[1] / (double)brim_setup_client_samples(s, brim_partition_count(&s->partition, client->client));
  return BRIM_OK;
}

brim_status brim_lane_evaluate(brim_lane *l, int64_t client, double *loss)
{
  brim_client_result of = {.client = client, .is_malicious = brim_attack_has(l->drive->setup, client)};
  double metrics[2], counted;
  BRIM_TRY(load_client(l, &of, false));
  BRIM_TRY(run_batches(l, &of, false, metrics, &counted));
  *loss = metrics[0] / counted;
  return BRIM_OK;
}

/* Uses the client's samples without augmentation and with their true labels, even if the client is malicious. */
brim_status brim_lane_score(brim_lane *l, int64_t client, double *accuracy)
{
  brim_client_result of = {.client = client};
  BRIM_TRY(load_client(l, &of, true));
  return find_accuracy(l, &of, accuracy);
}

/* Trains on the client's own loss, without the terms of federate.local, at the schedule's initial rate. The epochs
 * follow those of the last round. */
brim_status brim_lane_finetune(brim_lane *l, int64_t client, double *accuracy)
{
  const brim_setup *s = l->drive->setup;
  const brim_federate_settings *f = &s->settings->federate;
  const int64_t first = s->settings->rounds * f->edge_rounds * f->local_epochs;
  const brim_philox key =
      brim_random4((uint64_t)s->settings->seed, BRIM_STREAM_CLIENT, FINETUNE_STREAM, (uint64_t)client, 0);
  brim_client_result of = {.client = client};
  turn t = {.lane = l, .result = &of, .seed = (uint64_t)key.v[0] << 32 | key.v[1]};
  BRIM_TRY(brim_schedule_factor(s->schedule, s->schedule_params, 0, l->drive->order.steps, &t.factor));
  BRIM_TRY(load_client(l, &of, false));
  BRIM_TRY(brim_exec_zero_states(l->exec));
  for (int64_t e = 0; e < f->finetune_epochs; e++) BRIM_TRY(make_epoch(&t, first + e));
  return find_accuracy(l, &of, accuracy);
}

brim_status brim_lane_fold(brim_lane *l, const brim_client_result *result, double weight, int64_t clients)
{
  BRIM_TRY(brim_exec_run(l->exec, l->fold, &(brim_step){.federated = weight}, NULL));
  if (!l->fold_control) return BRIM_OK;
  const brim_step step = {.federated = brim_control_weight(clients, result->rates)};
  return brim_exec_run(l->exec, l->fold_control, &step, NULL);
}
