/* See timing.h. */
#include "exec/timing.h"

#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "exec/exec.h"
#include "graph/documents.h"
#include "graph/signature.h"

#define ROUNDS_MIN 3
#define ROUNDS_MAX 15
/* Limit for sets of rounds, which are repeated until two consecutive ones agree, because other processes may use the
 * machine. */
#define SETS_MAX 4
#define ROUNDS_SECONDS 0.1     /* limit for a set's rounds beyond the minimum number */
#define ROUNDS_SECONDS_MAX 2.0 /* limit for a set in all cases, for kernels that are much slower than predicted */
#define AHEAD 16               /* launches of a node that are timed together on an asynchronous device */

/* A part of a step that is timed: a node, or another part. */
typedef struct subject {
  const char *what;
  int64_t n;
  double rated;
  /* wanted: missing in the profile; runs: in every round, because its time or the next one's is wanted. */
  bool wanted, runs;
  double seconds[ROUNDS_MAX];
  double least; /* the least seconds of the sets so far */
} subject;

enum { ZERO, LOAD, METRICS, OTHERS };

typedef struct timing {
  brim_profile *profile;
  const brim_rates *rates;
  const brim_plan *plan;
  brim_exec *exec;
  brim_arena arena;
  subject other[OTHERS];
  subject *node[BRIM_PROGRAMS_ROOM]; /* per program; NULL: not timed */
  void *values;                      /* a micro-batch on the host */
  void *labels;
  int round; /* -1: the warm-up */
} timing;

static bool is_timed(const brim_program *p)
{
  return p->kind != BRIM_PROGRAM_EVALUATE;
}

/* ---- subjects to time ---- */

/* Whether no earlier subject has the same signature, because one of them is enough. */
static bool is_new(const timing *t, const subject *s, const subject *before, size_t count)
{
  if (!brim_profile_lacks(t->profile, s->what, s->n)) return false;
  for (size_t i = 0; i < count; i++)
    if (before[i].wanted && before[i].n == s->n && strcmp(before[i].what, s->what) == 0) return false;
  return true;
}

static void list_nodes(timing *t, size_t program)
{
  const brim_program *p = &t->plan->program[program];
  const size_t count = p->graph->node_count;
  brim_text what = {0};
  subject *all = t->node[program] = BRIM_ARENA_NEW(&t->arena, subject, count);
  for (size_t i = 0; i < count; i++) {
    const brim_node *n = p->graph->node[i];
    brim_text_clear(&what);
    brim_signature_print(p, n, &what);
    all[i].what = brim_arena_string(&t->arena, brim_text_str(&what));
    all[i].n = p->info.batch;
    all[i].rated = brim_rates_seconds(t->rates, brim_op_cost(n));
    all[i].wanted = is_new(t, &all[i], all, i);
    all[i].runs = all[i].wanted;
    if (i > 0 && all[i].wanted) all[i - 1].runs = true;
  }
  brim_text_release(&what);
}

static void list_others(timing *t)
{
  const brim_graph *g = t->plan->program[0].graph;
  const int64_t bytes[OTHERS] = {
      [ZERO] = (int64_t)t->plan->zeroed_bytes, [LOAD] = (int64_t)(g->input->bytes + g->label->bytes), [METRICS] = 1};
  static const char *const names[OTHERS] = {BRIM_TIMED_ZERO, BRIM_TIMED_LOAD, BRIM_TIMED_METRICS};
  for (int i = 0; i < OTHERS; i++) {
    subject *s = &t->other[i];
    *s = (subject){.what = names[i], .n = bytes[i]};
    s->rated = brim_rates_seconds(t->rates, (brim_cost){.bytes = (uint64_t)bytes[i]});
    s->wanted = is_new(t, s, NULL, 0);
  }
}

double brim_timing_foresee(brim_profile *profile, const brim_rates *rates, const brim_plan *plan)
{
  timing t = {.profile = profile, .rates = rates, .plan = plan};
  brim_prediction p = {0};
  for (size_t i = 0; i < plan->program_count; i++) {
    if (is_timed(&plan->program[i])) list_nodes(&t, i);
    for (size_t k = 0; t.node[i] && k < plan->program[i].graph->node_count; k++)
      if (t.node[i][k].runs) brim_predict_other(profile, t.node[i][k].what, t.node[i][k].n, t.node[i][k].rated, 1, &p);
  }
  brim_arena_release(&t.arena);
  return p.seconds;
}

/* ---- values ---- */

/* Fills memory with bits that are small numbers of both signs in every floating-point type, so that kernels take the
 * same time as with real values. */
static void make_values(uint16_t *out, uint64_t bytes)
{
  uint32_t random = 12345;
  for (uint64_t i = 0; i < bytes / sizeof *out; i++) {
    random = random * 1664525 + 1013904223;
    out[i] = (uint16_t)(0x3D00 | (random >> 16 & 0x7F) | (random >> 8 & 0x8000)); /* bf16 of 1/32 to 1/16 */
  }
}

static brim_status fill(timing *t)
{
  const brim_program *p = &t->plan->program[0];
  const brim_graph *g = p->graph;
  uint64_t most = 0, input = 0, label = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].value->bytes > most) most = g->parameter[i].value->bytes;
  for (size_t i = 0; i < t->plan->program_count; i++) {
    const brim_graph *each = t->plan->program[i].graph;
    if (each->input && each->input->bytes > input) input = each->input->bytes;
    if (each->label && each->label->bytes > label) label = each->label->bytes;
  }
  if (input > most) most = input;
  t->values = brim_try_calloc(1, most + sizeof(uint64_t));
  t->labels = brim_try_calloc(1, label + sizeof(int32_t));
  if (!t->values || !t->labels)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values that kernels are timed on");
  make_values(t->values, most);
  for (size_t i = 0; i < g->parameter_count; i++)
    BRIM_TRY(brim_exec_write(t->exec, p, g->parameter[i].value, t->values));
  if (g->input->dtype == BRIM_DTYPE_I32) memset(t->values, 0, input); /* valid indices */
  /* Each sample is one document, which takes longest. */
  if (g->tokens) brim_documents_fill(t->values, input / (g->input->bytes / g->batch), g->places->shape.dim[1]);
  return BRIM_OK;
}

/* ---- rounds ---- */

static void keep(const timing *t, subject *s, double seconds)
{
  if (t->round >= 0 && s->wanted) s->seconds[t->round] = seconds;
}

/* On an asynchronous device a node is started several times, which share the time of one wait. */
static brim_status time_node(timing *t, const brim_program *p, size_t node, subject *s, const brim_step *step)
{
  const int times = brim_exec_is_asynchronous(t->exec) && t->round >= 0 && s->wanted ? AHEAD : 1;
  const double start = brim_now();
  for (int i = 0; i < times; i++) BRIM_TRY(brim_exec_run_node(t->exec, p, node, step));
  if (times > 1) BRIM_TRY(brim_exec_wait(t->exec));
  keep(t, s, (brim_now() - start) / times);
  return BRIM_OK;
}

/* Zeroes the indices that n reads from nodes that do not run. */
static brim_status clear_indices(timing *t, const brim_program *p, const subject *all, const brim_node *n)
{
  for (uint32_t k = 0; k < n->in_count; k++) {
    const brim_tensor *x = n->in[k];
    const bool is_index = x->dtype == BRIM_DTYPE_I32 || x->dtype == BRIM_DTYPE_U8;
    if (is_index && x->producer >= 0 && !all[x->producer].runs) BRIM_TRY(brim_exec_zero(t->exec, p, x));
  }
  return BRIM_OK;
}

static brim_status run_program(timing *t, size_t program)
{
  const brim_step step = {.seed = 1,
                          .loss_scale = 1e-3,
                          .norm_groups = 1,
                          .lr = 1e-6,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .momentum = 0.9,
                          .bias_correction1 = 0.1,
                          .bias_correction2 = 1e-3,
                          .gradient_scale = 1};
  const brim_program *p = &t->plan->program[program];
  subject *all = t->node[program];
  if (p->graph->input) BRIM_TRY(brim_exec_load(t->exec, p, t->values, t->labels));
  for (size_t i = 0; i < p->graph->node_count; i++) {
    if (!all[i].runs) continue;
    BRIM_TRY(clear_indices(t, p, all, p->graph->node[i]));
    BRIM_TRY(time_node(t, p, i, &all[i], &step));
  }
  return brim_exec_wait(t->exec);
}

static brim_status run_round(timing *t)
{
  double metrics[2], start = brim_now();
  BRIM_TRY(brim_exec_zero_gradients(t->exec));
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  BRIM_TRY(brim_exec_wait(t->exec));
  keep(t, &t->other[ZERO], brim_now() - start);
  start = brim_now();
  BRIM_TRY(brim_exec_load(t->exec, &t->plan->program[0], t->values, t->labels));
  BRIM_TRY(brim_exec_wait(t->exec));
  keep(t, &t->other[LOAD], brim_now() - start);
  start = brim_now();
  BRIM_TRY(brim_exec_metrics(t->exec, &t->plan->program[0], metrics, 2));
  keep(t, &t->other[METRICS], brim_now() - start);
  for (size_t i = 0; i < t->plan->program_count; i++)
    if (t->node[i]) BRIM_TRY(run_program(t, i));
  return BRIM_OK;
}

/* Takes the lower quartile of a set's times, which estimates the time while no other process uses the device; over
 * several sets, the smallest. */
static double take_set(subject *s, int set, int rounds)
{
  if (!s->wanted) return 0;
  qsort(s->seconds, (size_t)rounds, sizeof *s->seconds, brim_by_double);
  const double quartile = s->seconds[(rounds - 1) / 4];
  if (set == 0 || quartile < s->least) s->least = quartile;
  return quartile;
}

static double take_all(timing *t, int set, int rounds)
{
  double sum = 0;
  for (int i = 0; i < OTHERS; i++) sum += take_set(&t->other[i], set, rounds);
  for (size_t i = 0; i < t->plan->program_count; i++)
    for (size_t k = 0; t->node[i] && k < t->plan->program[i].graph->node_count; k++)
      sum += take_set(&t->node[i][k], set, rounds);
  return sum;
}

static void add(timing *t, const subject *s)
{
  if (s->wanted) brim_profile_add(t->profile, s->what, s->n, s->least, s->rated);
}

#define WHOLE_ROUNDS 5

/* Times each program whole, as a step starts it. Keeps the least of several times, because the host only adds time. */
static brim_status time_whole(timing *t, size_t program)
{
  const brim_step step = {
      .loss_scale = 1e-3, .norm_groups = 1, .bias_correction1 = 1, .bias_correction2 = 1, .eps = 1e-8};
  const brim_program *p = &t->plan->program[program];
  const brim_rates nodes = {t->rates->flops, t->rates->bytes, t->rates->node_seconds, false};
  brim_text name = {0};
  brim_prediction sum = {0};
  double least = 0;
  for (int i = 0; i < WHOLE_ROUNDS; i++) {
    if (p->graph->input) BRIM_TRY(brim_exec_load(t->exec, p, t->values, t->labels));
    BRIM_TRY(brim_exec_wait(t->exec));
    const double start = brim_now();
    BRIM_TRY(brim_exec_run(t->exec, p, &step, NULL));
    BRIM_TRY(brim_exec_wait(t->exec));
    const double seconds = brim_now() - start;
    if (i == 0 || seconds < least) least = seconds;
  }
  brim_predict_whole_name(p, &name);
  brim_predict_program(t->profile, &nodes, p, 1, &sum);
  brim_profile_add(t->profile, brim_text_str(&name), p->info.batch, least, sum.seconds);
  brim_text_release(&name);
  return BRIM_OK;
}

/* The number of rounds that is worthwhile if the first took `first` seconds. */
static int rounds_of(double first)
{
  const double seconds = first > 1e-6 ? first : 1e-6;
  if (seconds * ROUNDS_MIN > ROUNDS_SECONDS_MAX) return seconds * 2 > ROUNDS_SECONDS_MAX ? 1 : 2;
  const double wanted = ROUNDS_SECONDS / seconds;
  return wanted < ROUNDS_MIN ? ROUNDS_MIN : wanted > ROUNDS_MAX ? ROUNDS_MAX : (int)wanted;
}

static brim_status time_plan(timing *t, int device)
{
  BRIM_TRY(brim_exec_open(t->plan, device, &t->exec));
  BRIM_TRY(fill(t));
  const double start = brim_now();
  t->round = -1;
  BRIM_TRY(run_round(t));
  const double first = brim_now() - start;
  const int rounds = rounds_of(first);
  double before = 0;
  for (int set = 0; set < SETS_MAX; set++) {
    for (t->round = 0; t->round < rounds; t->round++) BRIM_TRY(run_round(t));
    const double sum = take_all(t, set, rounds);
    if (set > 0 && brim_profile_agree(sum, before)) break;
    before = sum;
  }
  for (int i = 0; i < OTHERS; i++) add(t, &t->other[i]);
  for (size_t i = 0; i < t->plan->program_count; i++)
    for (size_t k = 0; t->node[i] && k < t->plan->program[i].graph->node_count; k++) add(t, &t->node[i][k]);
  for (size_t i = 0; t->rates->whole && i < t->plan->program_count; i++)
    if (t->node[i]) BRIM_TRY(time_whole(t, i));
  return BRIM_OK;
}

brim_status brim_timing_run(brim_profile *profile, const brim_rates *rates, const brim_plan *plan, int device)
{
  timing t = {.profile = profile, .rates = rates, .plan = plan};
  list_others(&t);
  for (size_t i = 0; i < plan->program_count; i++)
    if (is_timed(&plan->program[i])) list_nodes(&t, i);
  const brim_status status = time_plan(&t, device);
  brim_exec_close(t.exec);
  free(t.values);
  free(t.labels);
  brim_arena_release(&t.arena);
  return status;
}
