/* See ceiling.h. */
#include "exec/ceiling.h"

#include <stdio.h>
#include <string.h>

#include "brim/model.h"
#include "exec/exec.h"

#define ROUNDS 7           /* the first is a warm-up */
#define ROUNDS_SECONDS 1.0 /* limit for all rounds together beyond the first two */

/* The timed load: a model of one layer, over [samples, width]. */
typedef struct load {
  int64_t samples, width;
} load;

/* The loads for a GPU and for a host. They are so large that caches and kernel launches do not matter, and take tenths
 * of a second, except in plain loops (reference). */
static const load loads[BRIM_CEILINGS][2] = {
    [BRIM_CEILING_PRODUCT] = {{16384, 4096}, {4096, 1024}},
    [BRIM_CEILING_COPY] = {{32768, 16384}, {16384, 2048}},
};
static const char *const names[BRIM_CEILINGS] = {[BRIM_CEILING_PRODUCT] = "product", [BRIM_CEILING_COPY] = "copy"};

static brim_status build_product(const void *self, brim_graph *g)
{
  const load *l = self;
  brim_output(g, brim_linear(g, "ceiling", brim_input(g), l->width));
  return BRIM_OK;
}

static brim_status build_copy(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_relu(g, brim_input(g)));
  return BRIM_OK;
}

static const brim_model_ops models[BRIM_CEILINGS] = {
    [BRIM_CEILING_PRODUCT] = {.size = sizeof models[0], .build = build_product},
    [BRIM_CEILING_COPY] = {.size = sizeof models[0], .build = build_copy},
};

/* Prints the name in the profile, "ceiling copy bf16". The entry's n is the work, in operations or bytes. */
static void print_name(enum brim_ceiling_kind kind, const brim_plan_request *like, char *out, size_t room)
{
  const uint32_t type = like->graph.activations ? like->graph.activations : like->graph.real;
  snprintf(out, room, "ceiling %s %s", names[kind], brim_dtype_name(type));
}

/* Returns the work per second; 0 if not timed. */
static double rate_of(brim_profile *profile, const brim_plan_request *like, enum brim_ceiling_kind kind)
{
  char name[64];
  const brim_profile_entry *below = NULL, *above = NULL;
  print_name(kind, like, name, sizeof name);
  brim_profile_neighbours(profile, name, INT64_MAX, &below, &above);
  return below && below->seconds > 0 ? (double)below->n / below->seconds : 0;
}

brim_ceiling brim_ceiling_find(brim_profile *profile, const brim_plan_request *like)
{
  return (brim_ceiling){rate_of(profile, like, BRIM_CEILING_PRODUCT), rate_of(profile, like, BRIM_CEILING_COPY)};
}

brim_status brim_ceiling_plan(const brim_plan_request *like, bool on_host, enum brim_ceiling_kind kind, brim_plan **out)
{
  const load *l = &loads[kind][on_host];
  const brim_plan_request request = {.graph = {.model = &models[kind],
                                               .model_self = l,
                                               .loss.op = "softmax_cross_entropy",
                                               .sample = {1, {l->width}},
                                               .classes = l->width,
                                               .real = like->graph.real,
                                               .activations = like->graph.activations},
                                     .backend = like->backend,
                                     .backend_self = like->backend_self,
                                     .shape = {{BRIM_PROGRAM_EVALUATE, l->samples}},
                                     .shape_count = 1};
  return brim_plan_create(&request, out);
}

static uint64_t work_of(const brim_program *p, size_t node, enum brim_ceiling_kind kind)
{
  const brim_cost cost = brim_op_cost(p->graph->node[node]);
  return kind == BRIM_CEILING_COPY ? cost.bytes : cost.flops;
}

/* Returns the node of the layer: the node with the most work, far more than conversions of the input and the loss
 * have. */
static size_t node_of(const brim_program *p, enum brim_ceiling_kind kind)
{
  size_t most = 0;
  for (size_t i = 1; i < p->graph->node_count; i++)
    if (work_of(p, i, kind) > work_of(p, most, kind)) most = i;
  return most;
}

static brim_status time_node(brim_exec *exec, const brim_program *p, size_t node, double *out)
{
  const brim_step step = {.norm_groups = 1, .gradient_scale = 1};
  const double first = brim_now();
  for (int i = 0; i < ROUNDS && (i < 2 || brim_now() - first < ROUNDS_SECONDS); i++) {
    const double start = brim_now();
    BRIM_TRY(brim_exec_run_node(exec, p, node, &step));
    BRIM_TRY(brim_exec_wait(exec));
    const double seconds = brim_now() - start;
    if (i == 1 || (i > 1 && seconds < *out)) *out = seconds;
  }
  return BRIM_OK;
}

brim_status brim_ceiling_time(brim_profile *profile, const brim_plan *plan, enum brim_ceiling_kind kind, int device)
{
  char name[64];
  brim_exec *exec = NULL;
  const brim_program *p = &plan->program[0];
  const size_t node = node_of(p, kind);
  const uint64_t work = work_of(p, node, kind);
  double seconds = 0;
  BRIM_TRY(brim_exec_open(plan, device, &exec));
  const brim_status status = time_node(exec, p, node, &seconds);
  brim_exec_close(exec);
  BRIM_TRY(status);
  print_name(kind, &plan->request, name, sizeof name);
  if (rate_of(profile, &plan->request, kind) < (double)work / seconds)
    brim_profile_add(profile, name, (int64_t)work, seconds, 0);
  return BRIM_OK;
}

double brim_ceiling_seconds(const brim_ceiling *c, brim_cost cost)
{
  const double product = c->flops > 0 ? (double)cost.flops / c->flops : 0;
  const double copy = c->bytes > 0 ? (double)cost.bytes / c->bytes : 0;
  return product > copy ? product : copy;
}
