/* The accuracy of the global model on the data of each client. See trainer.h.
 *
 * Clients are views of one dataset, so one pass over it suffices. The pass sets a bit for each training sample that the
 * model answers correctly, and then the bits of each client's samples are counted. The pass runs the evaluation program
 * and reads the input of its last node, the metrics, so the plan does not change. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/trainer_parts.h"

typedef struct pass {
  brim_trainer *trainer;
  const brim_program *program;
  const brim_node *metrics; /* the program's node of metrics, whose second input contains the model's answers */
  int64_t first, count;     /* this rank's samples, in the order of the split */
  double *logits;           /* [batch, classes] */
  int32_t *rank;            /* [batch] ranks of labels among the classes if there are no logits; else NULL */
  uint8_t *right;           /* a bit for each training sample of all ranks */
} pass;

static brim_span next_span(void *context, int64_t sequence)
{
  const pass *p = context;
  const int64_t batch = p->program->info.batch, first = sequence * batch, rest = p->count - first;
  return (brim_span){BRIM_PART_TRAIN, BRIM_EPOCH_PLAIN, p->first + first, rest <= 0 ? 0 : rest < batch ? rest : batch};
}

/* An isolated client's samples are not next to each other in the split. */
static brim_span next_own(void *context, int64_t sequence)
{
  const pass *p = context;
  const brim_setup *s = p->trainer->drive->setup;
  if (sequence >= p->count) return (brim_span){BRIM_PART_TRAIN, BRIM_EPOCH_PLAIN, 0, 0};
  const int64_t order = brim_partition_order(&s->partition, brim_setup_own_client(s), sequence);
  return (brim_span){BRIM_PART_TRAIN, BRIM_EPOCH_PLAIN, order, 1};
}

/* The largest evaluation program. */
static const brim_program *find_program(const brim_plan *plan)
{
  const brim_program *largest = NULL;
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    if (p->kind == BRIM_PROGRAM_EVALUATE && (!largest || p->info.batch > largest->info.batch)) largest = p;
  }
  return largest;
}

static const brim_node *find_metrics(const brim_graph *g)
{
  for (size_t i = g->node_count; i > 0; i--)
    if (g->node[i - 1]->out_count > 0 && g->node[i - 1]->out[0] == g->metrics) return g->node[i - 1];
  return NULL;
}

static brim_status open_pass(pass *p)
{
  const brim_setup *s = p->trainer->drive->setup;
  p->program = find_program(p->trainer->plan);
  p->metrics = find_metrics(p->program->graph);
  if (!p->metrics) return brim_fail(BRIM_EINTERNAL, "the evaluation has no metrics");
  const brim_tensor *answers = p->metrics->in[1];
  const size_t values = (size_t)brim_shape_count(&answers->shape);
  brim_setup_part(s, BRIM_PART_TRAIN, &p->first, &p->count);
  if (brim_setup_is_isolated(s))
    p->count = brim_setup_own_client(s) < 0 ? 0 : brim_partition_count(&s->partition, brim_setup_own_client(s));
  p->right = brim_try_calloc((size_t)(s->data.count[BRIM_PART_TRAIN] + 7) / 8, 1);
  if (answers->dtype == BRIM_DTYPE_I32)
    p->rank = brim_try_malloc(values * sizeof *p->rank);
  else
    p->logits = brim_try_malloc(values * sizeof *p->logits);
  if (p->right && (p->rank || p->logits)) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the accuracy of each client");
}

/* Whether the model's answer is the label. As in classification_metrics, the answer is the first of the largest
 * logits. */
static bool is_right(const pass *p, int64_t i, int32_t label)
{
  if (p->rank) return p->rank[i] == 0;
  const brim_shape *shape = &p->metrics->in[1]->shape;
  const int64_t classes = shape->dim[shape->rank - 1];
  const double *logits = p->logits + i * classes;
  int64_t greatest = 0;
  for (int64_t k = 1; k < classes; k++)
    if (logits[k] > logits[greatest]) greatest = k;
  return greatest == label;
}

/* The program takes whole batches, so this pads a shorter one with copies of its first sample. */
static void fill_up(const pass *p, const brim_batch *batch)
{
  const brim_setup *s = p->trainer->drive->setup;
  const uint32_t real = s->backend_ops->real;
  const uint64_t values = brim_data_values_bytes(&s->data, real),
                 label = brim_data_label_bytes(&s->data, BRIM_PART_TRAIN, real);
  for (int64_t i = batch->span.count; i < p->program->info.batch; i++) {
    memcpy((char *)batch->values + (uint64_t)i * values, batch->values, values);
    memcpy((char *)batch->labels + (uint64_t)i * label, batch->labels, label);
  }
}

static brim_status evaluate_batch(const pass *p, const brim_batch *batch)
{
  brim_exec *exec = p->trainer->exec;
  const brim_tensor *answers = p->metrics->in[1];
  fill_up(p, batch);
  BRIM_TRY(brim_exec_load(exec, p->program, batch->values, batch->labels));
  BRIM_TRY(brim_exec_run(exec, p->program, &(brim_step){.loss_scale = 1}, NULL));
  BRIM_TRY(p->rank ? brim_exec_read(exec, p->program, answers, p->rank)
                   : brim_exec_read_as(exec, p->program, answers, BRIM_DTYPE_F64, p->logits));
  for (int64_t i = 0; i < batch->span.count; i++) {
    const int64_t sample = batch->span.first + i;
    if (is_right(p, i, ((const int32_t *)batch->labels)[i])) p->right[sample / 8] |= (uint8_t)(1u << sample % 8);
  }
  return BRIM_OK;
}

static brim_status run_pass(pass *p, const volatile int *stop)
{
  const brim_setup *s = p->trainer->drive->setup;
  brim_loader_options options = brim_setup_part_loader(s, BRIM_PART_TRAIN, p->program->info.batch);
  brim_loader *loader = NULL;
  const brim_batch *batch = NULL;
  options.batch_max = p->program->info.batch;
  options.next = brim_setup_is_isolated(s) ? next_own : next_span;
  options.context = p;
  brim_status status = brim_loader_open(&options, &loader);
  do {
    if (status == BRIM_OK) status = brim_loader_next(loader, &batch);
    if (status == BRIM_OK && stop && *stop) status = brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    if (status == BRIM_OK && batch) status = evaluate_batch(p, batch);
  } while (status == BRIM_OK && batch);
  brim_loader_close(loader);
  return status;
}

/* Combines the bits of all ranks; every rank gets the result. */
static brim_status share_bits(const pass *p)
{
  const brim_setup *s = p->trainer->drive->setup;
  const size_t bytes = (size_t)(s->data.count[BRIM_PART_TRAIN] + 7) / 8, ranks = (size_t)s->world.ranks;
  if (!s->options.dist) return BRIM_OK;
  uint8_t *all = brim_xcalloc(ranks, BRIM_EXCHANGE_BYTES); /* must not fail, because the other ranks would wait */
  brim_status status = BRIM_OK;
  for (size_t at = 0; at < bytes && status == BRIM_OK; at += BRIM_EXCHANGE_BYTES) {
    const size_t count = bytes - at < BRIM_EXCHANGE_BYTES ? bytes - at : BRIM_EXCHANGE_BYTES;
    status = brim_dist_exchange(s->options.dist, p->right + at, (uint32_t)count, all);
    for (size_t i = 0; i < ranks * count && status == BRIM_OK; i++) p->right[at + i % count] |= all[i];
  }
  free(all);
  return status;
}

static brim_status add_clients(const pass *p, brim_tally *accuracy)
{
  const brim_partition *partition = &p->trainer->drive->setup->partition;
  for (int64_t client = 0; client < partition->clients; client++) {
    const int64_t samples = brim_partition_count(partition, client);
    int64_t right = 0;
    for (int64_t i = 0; i < samples; i++) {
      const int64_t sample = brim_partition_order(partition, client, i);
      right += p->right[sample / 8] >> sample % 8 & 1;
    }
    BRIM_TRY(brim_tally_add(accuracy, (double)right / (double)samples));
  }
  return BRIM_OK;
}

static brim_status count_clients(const pass *p, brim_spread *out)
{
  brim_tally accuracy = {0};
  const brim_status status = add_clients(p, &accuracy);
  if (status == BRIM_OK) *out = brim_tally_spread(&accuracy);
  brim_tally_release(&accuracy);
  return status;
}

brim_status brim_trainer_evaluate_own(brim_trainer *t, bool finetunes, const volatile int *stop, brim_spread *out)
{
  double sum[BRIM_BALLOT_SUMS] = {0};
  const brim_status status = brim_federation_score(t->federation, finetunes, stop, out);
  if (status != BRIM_OK) t->failed_at = brim_now();
  return brim_trainer_meet_for(t, BRIM_MEET_EVALUATED, t->state.step, status, sum);
}

brim_status brim_trainer_evaluate_clients(brim_trainer *t, const volatile int *stop, brim_spread *out)
{
  pass p = {.trainer = t};
  brim_status status = open_pass(&p);
  if (status == BRIM_OK) status = run_pass(&p, stop);
  if (status != BRIM_OK) t->failed_at = brim_now();
  double sum[BRIM_BALLOT_SUMS] = {0};
  status = brim_trainer_meet_for(t, BRIM_MEET_EVALUATED, t->state.step, status, sum);
  if (status == BRIM_OK) status = share_bits(&p);
  if (status == BRIM_OK) status = count_clients(&p, out);
  free(p.right);
  free(p.rank);
  free(p.logits);
  return status;
}
