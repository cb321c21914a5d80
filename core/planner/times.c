/* See times.h. */
#include "planner/times.h"

#include <stdlib.h>
#include <string.h>

#include "exec/predict.h"
#include "graph/signature.h"
#include "planner/figures.h"

/* The times of one program while they are collected. */
typedef struct gathering {
  brim_planner *planner;
  brim_times *out;
  const char **signature; /* the signature of each entry of *out */
  double times;           /* runs of the program per step */
} gathering;

static brim_op_time *entry_of(gathering *g, const brim_node *n, const char *signature)
{
  brim_times *t = g->out;
  for (size_t i = 0; i < t->count; i++)
    if (strcmp(g->signature[i], signature) == 0) return &t->op[i];
  g->signature[t->count] = brim_arena_string(&t->arena, signature);
  t->op[t->count] = (brim_op_time){.op = n->op, .name = n->name};
  return &t->op[t->count++];
}

static void add_node(gathering *g, const brim_program *program, const brim_node *n)
{
  const brim_rates rates = brim_rates_of(&g->planner->device_info);
  const brim_cost cost = brim_op_cost(n);
  brim_prediction prediction = {0};
  brim_text signature = {0};
  brim_signature_print(program, n, &signature);
  brim_predict_other(g->planner->profile, brim_text_str(&signature), program->info.batch,
                     brim_rates_seconds(&rates, cost), g->times, &prediction);
  brim_op_time *e = entry_of(g, n, brim_text_str(&signature));
  e->nodes++;
  e->times += g->times;
  e->seconds += prediction.seconds;
  e->floor += g->times * brim_ceiling_seconds(&g->out->ceiling, cost);
  e->cost.flops += (uint64_t)(g->times * (double)cost.flops);
  e->cost.bytes += (uint64_t)(g->times * (double)cost.bytes);
  brim_text_release(&signature);
}

static double above_floor(const brim_op_time *e)
{
  return e->seconds - e->floor;
}

static int most_first(const void *a, const void *b)
{
  const double x = above_floor(a), y = above_floor(b);
  return (x < y) - (x > y);
}

static void gather(brim_planner *p, const brim_plan *plan, brim_times *out)
{
  size_t nodes = 0;
  for (size_t i = 0; i < plan->program_count; i++) nodes += plan->program[i].graph->node_count;
  out->op = BRIM_ARENA_NEW(&out->arena, brim_op_time, nodes);
  gathering g = {.planner = p, .out = out, .signature = BRIM_ARENA_NEW(&out->arena, const char *, nodes)};
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *program = &plan->program[i];
    const bool trains = program->kind == BRIM_PROGRAM_TRAIN;
    const double runs = trains ? (double)brim_setup_step_micros(p->setup, program->info.batch) : 1;
    for (size_t k = 0; k < program->graph->node_count; k++) {
      g.times = brim_program_times(program, k, runs);
      add_node(&g, program, program->graph->node[k]);
    }
  }
  qsort(out->op, out->count, sizeof *out->op, most_first);
}

brim_status brim_times_find(brim_planner *p, const brim_choice *choice, brim_times *out)
{
  brim_figures figures;
  *out = (brim_times){0};
  BRIM_TRY(brim_planner_plan(p, choice, true, &out->plan));
  BRIM_TRY(brim_planner_time(p, out->plan));
  BRIM_TRY(brim_planner_figures(p, choice, &figures));
  out->ceiling = brim_ceiling_find(p->profile, &out->plan->request);
  gather(p, out->plan, out);
  out->seconds = out->rest_seconds = figures.step_seconds;
  for (size_t i = 0; i < out->count; i++) out->rest_seconds -= out->op[i].seconds;
  return BRIM_OK;
}

void brim_times_release(brim_times *times)
{
  brim_plan_free(times->plan);
  brim_arena_release(&times->arena);
  *times = (brim_times){0};
}
