/* See traffic.h. */
#include "planner/traffic.h"

#include <math.h>
#include <string.h>

#include "exec/ceiling.h"
#include "exec/launches.h"
#include "exec/predict.h"
#include "graph/overwritten.h"
#include "graph/signature.h"
#include "planner/figures.h"

const char *const brim_traffic_names[BRIM_TRAFFICS] = {[BRIM_KIND_POINTWISE] = "pointwise",
                                                       [BRIM_KIND_PRODUCT] = "matmul",
                                                       [BRIM_KIND_PRODUCT_LOSS] = "matmul with loss",
                                                       [BRIM_KIND_ATTENTION] = "attention",
                                                       [BRIM_KIND_CONVOLUTION] = "convolution",
                                                       [BRIM_KIND_RECURRENT] = "lstm",
                                                       [BRIM_KIND_NORM] = "norm",
                                                       [BRIM_KIND_POOLING] = "pooling",
                                                       [BRIM_KIND_REDUCTION] = "reduction and loss",
                                                       [BRIM_KIND_LOOKUP] = "embedding",
                                                       [BRIM_KIND_COPY] = "copy and cast",
                                                       [BRIM_KIND_UPDATE] = "optimizer",
                                                       [BRIM_TRAFFIC_COLLECTIVES] = "collectives",
                                                       [BRIM_TRAFFIC_INPUT] = "zeroing and input"};
const char *const brim_bound_names[] = {[BRIM_BOUND_UNKNOWN] = "",
                                        [BRIM_BOUND_COMPUTE] = "compute",
                                        [BRIM_BOUND_MEMORY] = "memory",
                                        [BRIM_BOUND_LAUNCHES] = "launches"};

enum brim_bound brim_traffic_bound(const brim_traffic_sum *sum)
{
  if (!(sum->seconds > 0)) return BRIM_BOUND_UNKNOWN;
  if (sum->launch_seconds > sum->seconds) return BRIM_BOUND_LAUNCHES;
  return sum->compute_seconds > sum->memory_seconds ? BRIM_BOUND_COMPUTE : BRIM_BOUND_MEMORY;
}

/* ---- rates ---- */

static double over(double work, double rate)
{
  return work == 0 ? 0 : rate > 0 ? work / rate : NAN;
}

/* Uses the rates of the data sheet; for a device without one, those of the kernels that brim times as ceilings. */
static brim_status find_rates(brim_planner *p, brim_traffic *t)
{
  t->rates = p->device_info.rates;
  if (t->rates.launch_seconds == 0) t->rates.launch_seconds = brim_rates_of(&p->device_info).node_seconds;
  if (t->rates.bytes > 0) return BRIM_OK;
  BRIM_TRY(brim_planner_time_ceilings(p, t->plan));
  const brim_ceiling ceiling = brim_ceiling_find(p->profile, &t->plan->request);
  t->rates.products_f32 = t->rates.products_16 = t->rates.flops = ceiling.flops;
  t->rates.bytes = ceiling.bytes;
  t->is_measured = ceiling.flops > 0 && ceiling.bytes > 0;
  return BRIM_OK;
}

static bool is_small(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_BF16 || dtype == BRIM_DTYPE_F16;
}

/* Returns the type of a product's values: the smallest one, because inputs of other types are parameters that are
 * converted, or sums. */
static uint32_t dtype_of(const brim_node *n)
{
  for (uint32_t i = 0; i < n->in_count; i++)
    if (is_small(n->in[i]->dtype)) return n->in[i]->dtype;
  return n->out_count > 0 ? n->out[0]->dtype : BRIM_DTYPE_F32;
}

static double flops_rate(const brim_device_rates *rates, const brim_node *n)
{
  if (!brim_kind_is_product(n->descriptor->kind)) return rates->flops;
  return is_small(dtype_of(n)) ? rates->products_16 : rates->products_f32;
}

/* ---- adding up ---- */

static void add(brim_traffic_sum *to, const brim_traffic_sum *s)
{
  to->nodes += s->nodes;
  to->launches += s->launches;
  to->flops += s->flops;
  to->bytes += s->bytes;
  to->compute_seconds += s->compute_seconds;
  to->memory_seconds += s->memory_seconds;
  to->seconds += s->seconds;
  to->launch_seconds += s->launch_seconds;
}

/* Returns a sum with its times. */
static brim_traffic_sum priced(const brim_device_rates *rates, double flops_per_second, brim_traffic_sum s)
{
  s.compute_seconds = over(s.flops, flops_per_second);
  s.memory_seconds = over(s.bytes, rates->bytes);
  s.seconds = isnan(s.compute_seconds) || isnan(s.memory_seconds) ? NAN : fmax(s.compute_seconds, s.memory_seconds);
  s.launch_seconds = s.launches * rates->launch_seconds;
  return s;
}

static void add_to_step(brim_traffic *t, int kind, const brim_traffic_sum *s)
{
  add(&t->kind[kind], s);
  add(&t->step, s);
}

static brim_traffic_row *row_of(brim_traffic *t, const brim_node *n, const char *signature)
{
  for (size_t i = 0; i < t->count; i++)
    if (strcmp(t->row[i].signature, signature) == 0) return &t->row[i];
  t->row[t->count] = (brim_traffic_row){.op = n->op,
                                        .name = n->name,
                                        .signature = brim_arena_string(&t->arena, signature),
                                        .kind = (int)n->descriptor->kind,
                                        .dtype = dtype_of(n)};
  return &t->row[t->count++];
}

/* Gradients that the first micro-batch overwrites are not read in it. */
static void add_node(brim_traffic *t, const brim_program *p, const brim_node *n, double launches, double runs)
{
  const double times = brim_program_times(p, n->index, runs);
  const bool is_view = brim_launches_is_view(p, n);
  const brim_cost cost = is_view ? (brim_cost){0} : brim_op_cost(n);
  const double written = p->kind == BRIM_PROGRAM_TRAIN ? (double)brim_overwritten_bytes(p, n) : 0;
  const uint64_t further = p->need[n->index].further_bytes;
  brim_text signature = {0};
  if (is_view && launches == 0) return;
  brim_signature_print(p, n, &signature);
  brim_traffic_row *row = row_of(t, n, brim_text_str(&signature));
  const brim_traffic_sum sum = priced(&t->rates, flops_rate(&t->rates, n),
                                      (brim_traffic_sum){.nodes = times,
                                                         .launches = launches,
                                                         .flops = times * (double)cost.flops,
                                                         .bytes = times * (double)(cost.bytes + further) - written});
  row->further_bytes += (uint64_t)(times * (double)further);
  add(&row->sum, &sum);
  add_to_step(t, row->kind, &sum);
  brim_text_release(&signature);
}

static void add_besides(brim_traffic *t, int kind, double launches, double bytes)
{
  const brim_traffic_sum sum =
      priced(&t->rates, t->rates.flops, (brim_traffic_sum){.launches = launches, .bytes = bytes});
  if (launches > 0 || bytes > 0) add_to_step(t, kind, &sum);
}

/* Adds, for each bucket of gradients, one read and one write of the sum. */
static void add_collectives(brim_traffic *t, const brim_plan *plan)
{
  double bytes = 0;
  if (plan->request.world.ranks < 2) return;
  for (size_t i = 0; i < plan->bucket_count; i++)
    bytes += (double)plan->bucket[i].count * (double)brim_dtype_bytes(plan->bucket[i].dtype);
  add_besides(t, BRIM_TRAFFIC_COLLECTIVES, (double)plan->bucket_count, 2 * bytes);
}

static uint64_t input_bytes(const brim_program *p)
{
  if (p->kind != BRIM_PROGRAM_TRAIN) return 0;
  return p->graph->input->bytes + p->graph->label->bytes;
}

/* Adds up over the runs of a step, the first of which may differ. */
static double over_runs(double first, double later, double times)
{
  return times > 1 ? first + (times - 1) * later : times * first;
}

static brim_status add_program(brim_traffic *t, const brim_program *p, double times)
{
  const size_t count = p->graph->node_count;
  uint32_t *first = BRIM_ARENA_NEW(&t->arena, uint32_t, count + 1);
  uint32_t *later = BRIM_ARENA_NEW(&t->arena, uint32_t, count + 1);
  BRIM_TRY(brim_launches_count(t->plan, p, 0, first));
  BRIM_TRY(brim_launches_count(t->plan, p, p->kept_casts, later));
  for (size_t i = 0; i < count; i++) add_node(t, p, p->graph->node[i], over_runs(first[i], later[i], times), times);
  add_besides(t, BRIM_TRAFFIC_INPUT, over_runs(first[count], later[count], times), times * (double)input_bytes(p));
  return BRIM_OK;
}

static brim_status gather(brim_planner *p, brim_traffic *t)
{
  const brim_plan *plan = t->plan;
  size_t nodes = 0;
  for (size_t i = 0; i < plan->program_count; i++) nodes += plan->program[i].graph->node_count;
  t->row = BRIM_ARENA_NEW(&t->arena, brim_traffic_row, nodes);
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *program = &plan->program[i];
    const bool trains = program->kind == BRIM_PROGRAM_TRAIN;
    BRIM_TRY(add_program(t, program, trains ? (double)brim_setup_step_micros(p->setup, program->info.batch) : 1));
  }
  add_besides(t, BRIM_TRAFFIC_INPUT, (double)plan->zeroed_count, (double)plan->zeroed_bytes);
  add_collectives(t, plan);
  return BRIM_OK;
}

brim_status brim_traffic_find(brim_planner *p, const brim_choice *choice, brim_traffic *out)
{
  *out = (brim_traffic){0};
  BRIM_TRY(brim_planner_plan(p, choice, true, &out->plan));
  BRIM_TRY(find_rates(p, out));
  return gather(p, out);
}

void brim_traffic_release(brim_traffic *t)
{
  brim_plan_free(t->plan);
  brim_arena_release(&t->arena);
  *t = (brim_traffic){0};
}
