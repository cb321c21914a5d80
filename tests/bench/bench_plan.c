/* Times building, differentiating, planning for the cpu backend and choosing recompute for a graph of a thousand
 * forward operations: the least of RUNS, in milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "conformance/load.h"
#include "graph/plan.h"
#include "large_model.h"

#define RUNS 15

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void must(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "%s\n", brim_error_text());
  exit(1);
}

static void time_graph(const brim_plan_request *request, bool training)
{
  brim_graph_options options = request->graph;
  options.batch = request->shape[0].batch;
  options.training = training;
  double least = 1e9;
  size_t forward = 0, nodes = 0;
  for (int i = 0; i < RUNS; i++) {
    brim_graph *g = NULL;
    const double start = now_ms();
    must(brim_graph_build(&options, &g));
    const double ms = now_ms() - start;
    if (ms < least) least = ms;
    forward = g->forward_count ? g->forward_count : g->node_count;
    nodes = g->node_count;
    brim_graph_free(g);
  }
  printf("%-44s %8.2f ms  (%zu operations, %zu of them forward)\n",
         training ? "build and differentiate" : "build for evaluation", least, nodes, forward);
}

static void time_plan(const brim_plan_request *request, const char *what)
{
  double least = 1e9, slack = 0;
  size_t buffers = 0;
  for (int i = 0; i < RUNS; i++) {
    brim_plan *plan = NULL;
    const double start = now_ms();
    must(brim_plan_create(request, &plan));
    const double ms = now_ms() - start;
    if (ms < least) least = ms;
    buffers = plan->program[0].buffer_count;
    slack = 100 * ((double)plan->peak_bytes / (double)plan->lower_bound_bytes - 1);
    brim_plan_free(plan);
  }
  printf("%-44s %8.2f ms  (%zu buffers, %.2f %% above the lower bound)\n", what, least, buffers, slack);
}

static void time_recompute(const brim_plan_request *request)
{
  brim_plan *plan = NULL;
  double least = 1e9;
  uint32_t levels = 0;
  must(brim_plan_create(request, &plan));
  for (int i = 0; i < RUNS; i++) {
    brim_arena arena = {0};
    brim_recompute r;
    const double start = now_ms();
    brim_recompute_choose(&plan->program[0], BRIM_RECOMPUTE_AUTO, &arena, &r);
    const double ms = now_ms() - start;
    if (ms < least) least = ms;
    levels = r.levels;
    brim_arena_release(&arena);
  }
  printf("%-44s %8.2f ms  (%u levels)\n", "what to recompute", least, levels);
  brim_plan_request tight = *request;
  tight.recompute = BRIM_RECOMPUTE_AUTO;
  for (uint64_t percent = 75; percent > 0; percent -= 25) {
    char what[64];
    tight.budget_bytes = plan->persistent_bytes + (plan->peak_bytes - plan->persistent_bytes) * percent / 100;
    snprintf(what, sizeof what, "plan with %d %% of the activations", (int)percent);
    time_plan(&tight, what);
  }
  brim_plan_free(plan);
}

int main(void)
{
  loaded cpu;
  if (!load_plugin(&cpu, "backend", "cpu", "{threads: 1}")) return 1;
  brim_plan_request request = {.graph = {.model = &large_model,
                                         .loss.op = "softmax_cross_entropy",
                                         .sample = {2, {LARGE_TOKENS, LARGE_WIDTH}},
                                         .classes = 10,
                                         .real = BRIM_DTYPE_F32},
                               .backend = cpu.plugin->ops,
                               .backend_self = cpu.self,
                               .shape = {{BRIM_PROGRAM_TRAIN, 8}, {BRIM_PROGRAM_TRAIN, 3}, {BRIM_PROGRAM_EVALUATE, 8}},
                               .shape_count = 1};
  time_graph(&request, false);
  time_graph(&request, true);
  time_plan(&request, "build, differentiate and plan");
  time_recompute(&request);
  request.update = (brim_update_options){.op = "adamw", .state_count = 2};
  request.shape_count = 3;
  time_plan(&request, "with a remainder, evaluation and the update");
  unload_plugin(&cpu);
  return 0;
}
