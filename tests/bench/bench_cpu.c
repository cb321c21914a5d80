/* Times every operation of a training step of the cnn on the cpu backend, at the places in the plan, compared with
 * the processor's peak:
 *
 *   bench_cpu [threads [batch [isa [fuse]]]]        default: 0 (all), 128, auto, all (of all, none)
 *
 * Each row is an operation: median and least milliseconds of RUNS steps; for the least, GFLOP/s and GB/s of its
 * tensors, each read or written once. More than 100 % of the triad's GB/s means that a tensor was still in the
 * cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "peak.h"

#define RUNS 21
#define NODES_MAX 128

/* ---- the processor's peak ---- */

typedef struct triad {
  float *a, *b, *c;
  size_t count;
} triad;

static void *run_triad(void *arg)
{
  const triad *t = arg;
  for (size_t i = 0; i < t->count; i++) t->a[i] = t->b[i] + 1.5f * t->c[i];
  return NULL;
}

static double triad_gbs(int threads, size_t count)
{
  triad t[THREADS_MAX];
  for (int i = 0; i < threads; i++) {
    t[i] = (triad){malloc(count * 4), malloc(count * 4), malloc(count * 4), count};
    if (!t[i].a || !t[i].b || !t[i].c) abort();
    memset(t[i].a, 0, count * 4);
    memset(t[i].b, 0, count * 4);
    memset(t[i].c, 0, count * 4);
  }
  double best = 1e9;
  for (int k = 0; k < 4; k++) {
    const double ms = timed(threads, run_triad, (char *)t, sizeof t[0]);
    if (ms < best) best = ms;
  }
  for (int i = 0; i < threads; i++) {
    free(t[i].a);
    free(t[i].b);
    free(t[i].c);
  }
  return 12.0 * (double)count * threads / best * 1e-6;
}

/* ---- a training step, node by node ---- */

typedef struct row {
  char name[80];
  brim_cost cost;
  double ms[RUNS];
} row;

static row rows[NODES_MAX];
static size_t row_count;

static void check(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "error: %s\n", brim_error_text());
  exit(1);
}

static brim_launch launch_of(const brim_exec *exec, const brim_program *p, size_t node, void **in, void **out)
{
  const brim_node *n = p->graph->node[node];
  for (uint32_t k = 0; k < n->in_count; k++) in[k] = brim_exec_pointer(exec, p, n->in[k]);
  for (uint32_t k = 0; k < n->out_count; k++) out[k] = brim_exec_pointer(exec, p, n->out[k]);
  char *base = (char *)brim_exec_pointer(exec, p, n->out[0]) - p->tensor_offset[n->out[0]->id];
  const int32_t workspace = p->workspace_buffer[node];
  return (brim_launch){.node = n,
                       .state = p->state[node],
                       .in = in,
                       .out = out,
                       .workspace = workspace < 0 ? NULL : base + p->buffer[workspace].offset};
}

static void time_program(brim_exec *exec, const brim_plan *plan, const brim_program *p, const brim_step *step, int run)
{
  for (size_t i = 0; i < p->graph->node_count; i++) {
    void *in[8], *out[8];
    brim_launch launch = launch_of(exec, p, i, in, out);
    launch.step = step;
    if (row_count == NODES_MAX) abort();
    row *r = &rows[row_count++];
    snprintf(r->name, sizeof r->name, "%s '%s'", launch.node->op, launch.node->name);
    r->cost = brim_op_cost(launch.node);
    const double start = now_ms();
    check(p->kernel[i]->run(plan->request.backend_self, &launch));
    r->ms[run] = now_ms() - start;
  }
}

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Loads the inputs, which lie in memory that later operations reuse. */
static void load(brim_exec *exec, const brim_program *p, int64_t batch)
{
  const size_t count = (size_t)batch * 28 * 28;
  float *values = malloc(count * sizeof *values);
  int32_t *labels = malloc((size_t)batch * sizeof *labels);
  if (!values || !labels) abort();
  for (size_t i = 0; i < count; i++) values[i] = (float)((i * 7919) % 1009) / 1009 - 0.3f;
  for (int64_t i = 0; i < batch; i++) labels[i] = (int32_t)(i % 10);
  check(brim_exec_load(exec, p, values, labels));
  free(values);
  free(labels);
}

static void fill(brim_exec *exec, const brim_program *p)
{
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_parameter *parameter = &p->graph->parameter[i];
    const size_t n = (size_t)brim_shape_count(&parameter->value->shape);
    float *weights = malloc(n * sizeof *weights);
    if (!weights) abort();
    for (size_t k = 0; k < n; k++)
      weights[k] = (float)((double)((k * 104729) % 2003) / 1001.5 - 1) * (float)parameter->init.value;
    check(brim_exec_write(exec, p, parameter->value, weights));
    free(weights);
  }
}

static void print_rows(double peak, double triad_rate)
{
  double total = 0, flops = 0;
  printf("%-46s %8s %8s %9s %6s %8s %6s\n", "operation", "median", "ms", "GFLOP/s", "peak", "GB/s", "triad");
  for (size_t i = 0; i < row_count; i++) {
    row *r = &rows[i];
    qsort(r->ms, RUNS, sizeof *r->ms, by_value);
    const double ms = r->ms[0], gflops = (double)r->cost.flops / ms * 1e-6, gbs = (double)r->cost.bytes / ms * 1e-6;
    printf("%-46s %8.3f %8.3f %9.1f %5.0f%% %8.1f %5.0f%%\n", r->name, r->ms[RUNS / 2], ms, gflops, 100 * gflops / peak,
           gbs, 100 * gbs / triad_rate);
    total += ms;
    flops += (double)r->cost.flops;
  }
  printf("%-46s %8s %8.3f %9.1f %5.0f%%\n", "all operations", "", total, flops / total * 1e-6,
         100 * flops / total * 1e-6 / peak);
}

int main(int argc, char **argv)
{
  const int64_t batch = argc > 2 ? strtol(argv[2], NULL, 10) : 128;
  char settings[96];
  snprintf(settings, sizeof settings, "{threads: %ld, isa: %s}", argc > 1 ? strtol(argv[1], NULL, 10) : 0,
           argc > 3 ? argv[3] : "auto");
  loaded cpu, cnn;
  if (!load_plugin(&cpu, "backend", "cpu", settings) || !load_plugin(&cnn, "model", "cnn", NULL)) return 1;
  brim_plan_request request = {.graph = {.model = cnn.plugin->ops,
                                         .model_self = cnn.self,
                                         .loss.op = "softmax_cross_entropy",
                                         .sample = {3, {1, 28, 28}},
                                         .classes = 10,
                                         .real = BRIM_DTYPE_F32,
                                         .fuse = argc > 4 && strcmp(argv[4], "none") == 0 ? 0 : BRIM_FUSE_ALL},
                               .backend = cpu.plugin->ops,
                               .backend_self = cpu.self,
                               .grain = 16,
                               .update = {.op = "adamw", .state_count = 2},
                               .shape = {{BRIM_PROGRAM_TRAIN, batch}},
                               .shape_count = 1};
  brim_device_info info;
  check(request.backend->describe(cpu.self, 0, &info));
  const int threads = info.threads < THREADS_MAX ? info.threads : THREADS_MAX;

  brim_plan *plan = NULL;
  brim_exec *exec = NULL;
  double start = now_ms();
  check(brim_plan_create(&request, &plan));
  printf("%s, %d threads, batch %lld\nplan %.2f ms, peak %.1f MiB", info.name, threads, (long long)batch,
         now_ms() - start, (double)plan->peak_bytes / 1048576);
  start = now_ms();
  check(brim_exec_open(plan, 0, &exec));
  printf(", realize and place %.2f ms\n", now_ms() - start);
  const double peak = peak_gflops(threads), rate = triad_gbs(threads, (size_t)1 << 23);
  printf("peak %.0f GFLOP/s; triad %.1f GB/s from memory, %.1f GB/s of 6 MB a thread\n", peak, rate,
         triad_gbs(threads, (size_t)1 << 19));

  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  const brim_program *update = &plan->program[plan->program_count - 1];
  fill(exec, train);
  brim_step step = {.seed = 1,
                    .loss_scale = 1 / (double)batch,
                    .lr = 1e-3,
                    .weight_decay = 0.01,
                    .beta1 = 0.9,
                    .beta2 = 0.999,
                    .eps = 1e-8,
                    .bias_correction1 = 0.1,
                    .bias_correction2 = 0.001};
  double whole[RUNS];
  for (int run = -2; run < RUNS; run++) {
    step.step = (uint64_t)(run + 2);
    row_count = 0;
    load(exec, train, batch);
    start = now_ms();
    check(brim_exec_zero_gradients(exec));
    time_program(exec, plan, train, &step, run < 0 ? 0 : run);
    time_program(exec, plan, update, &step, run < 0 ? 0 : run);
    whole[run < 0 ? 0 : run] = now_ms() - start;
  }
  print_rows(peak, rate);
  qsort(whole, RUNS, sizeof *whole, by_value);
  printf("a step: median %.2f ms, least %.2f ms, %.0f samples/s\n", whole[RUNS / 2], whole[0],
         (double)batch / whole[RUNS / 2] * 1e3);
  brim_exec_close(exec);
  brim_plan_free(plan);
  unload_plugin(&cnn);
  unload_plugin(&cpu);
  return 0;
}
