/* Times the update of one large matrix by every optimizer on the cpu backend, compared with the memory's bandwidth:
 *
 *   bench_optimizers [threads [isa]]        default: 0 (all), auto
 *
 * Bytes are those of the update's tensors, each read or written once; each row has the least milliseconds of RUNS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builtin/builtin.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "formula_adamw.h"
#include "peak.h"

#define RUNS 15
#define INPUTS 2048
#define OUTPUTS 4096

static void check(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "error: %s\n", brim_error_text());
  exit(1);
}

static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), brim_classes(g)));
  return BRIM_OK;
}

typedef struct copied {
  float *to, *from;
  size_t count;
} copied;

static void *run_copy(void *arg)
{
  const copied *c = arg;
  for (size_t i = 0; i < c->count; i++) c->to[i] += 0.5f * c->from[i]; /* reads and writes like an update */
  return NULL;
}

static double memory_gbs(int threads)
{
  copied c[THREADS_MAX] = {{0}};
  const size_t count = (size_t)1 << 23;
  double best = 1e9;
  for (int i = 0; i < threads; i++) c[i] = (copied){calloc(count, 4), calloc(count, 4), count};
  for (int k = 0; k < 6; k++) {
    const double ms = timed(threads, run_copy, (char *)c, sizeof c[0]);
    if (k > 0 && ms < best) best = ms; /* the first run touches the pages */
  }
  for (int i = 0; i < threads; i++) {
    free(c[i].to);
    free(c[i].from);
  }
  return 12.0 * (double)count * threads / best * 1e-6;
}

static void fill_gradients(brim_exec *exec, const brim_program *update)
{
  const brim_graph *g = update->graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].gradient;
    float *value = malloc(t->bytes);
    for (int64_t k = 0; k < brim_shape_count(&t->shape); k++) value[k] = (float)(k * 7919 % 10007 - 5003) * 1e-5f;
    check(brim_exec_write(exec, update, t, value));
    free(value);
  }
}

static void time_optimizer(const loaded *cpu, const brim_plugin *optimizer, double gbs)
{
  static const brim_model_ops model = {sizeof model, build};
  loaded chosen;
  load_core_plugin(&chosen, optimizer, NULL);
  brim_plan_request r = {.graph = {.model = &model,
                                   .loss.op = "softmax_cross_entropy",
                                   .sample = {1, {INPUTS}},
                                   .classes = OUTPUTS,
                                   .real = BRIM_DTYPE_F32},
                         .backend = cpu->plugin->ops,
                         .backend_self = cpu->self,
                         .shape = {{BRIM_PROGRAM_TRAIN, 1}},
                         .shape_count = 1};
  brim_optimizer_describe(optimizer->ops, chosen.self, &r.update);
  brim_plan *plan = NULL;
  brim_exec *exec = NULL;
  check(brim_plan_create(&r, &plan));
  check(brim_exec_open(plan, 0, &exec));
  const brim_program *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  fill_gradients(exec, update);
  double best = 1e9;
  for (int run = 0; run < RUNS; run++) {
    brim_step step = {.step = (uint64_t)run, .gradient_scale = 1};
    check(brim_optimizer_fill(optimizer, chosen.self, 1, &step));
    const double start = now_ms();
    check(brim_exec_run(exec, update, &step, NULL));
    const double ms = now_ms() - start;
    if (ms < best) best = ms;
  }
  const double rate = (double)update->cost.bytes / best * 1e-6;
  printf("%-10s %9.2f ms %8.1f GB/s %5.0f %%   state %8.2f MB\n", optimizer->id, best, rate, 100 * rate / gbs,
         (double)plan->class_bytes[BRIM_ROLE_OPTIMIZER] * 1e-6);
  brim_exec_close(exec);
  brim_plan_free(plan);
  unload_plugin(&chosen);
}

int main(int argc, char **argv)
{
  static const brim_plugin *const optimizers[] = {
      &formula_plugin,           &brim_optimizer_adamw, &brim_optimizer_adam,
      &brim_optimizer_sgd,       &brim_optimizer_lion,  &brim_optimizer_adafactor,
      &brim_optimizer_adamw8bit, &brim_optimizer_yogi,  &brim_optimizer_adagrad};
  char settings[96];
  snprintf(settings, sizeof settings, "{threads: %ld, isa: %s}", argc > 1 ? strtol(argv[1], NULL, 10) : 0,
           argc > 2 ? argv[2] : "auto");
  loaded cpu;
  brim_device_info info;
  if (!load_plugin(&cpu, "backend", "cpu", settings)) return 1;
  check(((const brim_backend_ops *)cpu.plugin->ops)->describe(cpu.self, 0, &info));
  const int threads = info.threads < THREADS_MAX ? info.threads : THREADS_MAX;
  const double gbs = memory_gbs(threads);
  printf("%s, %d threads; a matrix of %d x %d; memory gives %.1f GB/s\n", info.name, threads, OUTPUTS, INPUTS, gbs);
  for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) time_optimizer(&cpu, optimizers[i], gbs);
  unload_plugin(&cpu);
  return 0;
}
