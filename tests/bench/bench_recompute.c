/* Measures the time that recompute costs: real steps on the cpu backend, of deep models and of vit, with
 * memory.recompute=none and with auto within a share of the activations, in turn:
 *
 *   bench_recompute [rounds [batch [share]]]        default: 15, 8, 0.3333
 *
 * Activations are everything that is not persistent, including their gradients and scratch. The predicted time comes
 * from the device profile for both programs, measured in this run; the measured time is the processor time of the one
 * thread, as a clock includes other load. Each round runs some steps of one plan and then of the other, and gives a
 * ratio; the median and the middle half are printed, and the ratio of the least times. Both must train to the same
 * bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "builtin/builtin.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "exec/initialize.h"
#include "exec/timing.h"
#include "unit/recompute_models.h"

#define ROUNDS_MAX 200
#define ROUND_SECONDS 0.1 /* approximate time of one plan's steps in a round */
#define VIT "{depth: 12, width: 96, heads: 3, dropout: 0.1}"
#define VIT_SIDE 28

typedef struct setting {
  int rounds;
  int64_t batch;
  double share;
} setting;

/* A plan on the device, and its measurements. */
typedef struct run {
  brim_plan *plan;
  brim_exec *exec;
  uint64_t steps;
  double predicted;           /* seconds */
  double seconds[ROUNDS_MAX]; /* seconds of a step */
} run;

static void check(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "error: %s\n", brim_error_text());
  exit(1);
}

static double processor_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t transient_of(const brim_plan *plan)
{
  return plan->peak_bytes - plan->persistent_bytes;
}

/* ---- steps ---- */

static void load_samples(run *r)
{
  const brim_graph *g = r->plan->program[0].graph;
  const int64_t count = brim_shape_count(&g->input->shape), batch = brim_shape_count(&g->label->shape);
  float *value = malloc((size_t)count * sizeof *value);
  int32_t *label = malloc((size_t)batch * sizeof *label);
  for (int64_t i = 0; i < count; i++) value[i] = (float)(i * 7919 % 10007 - 5003) * 2e-4f;
  for (int64_t i = 0; i < batch; i++) label[i] = (int32_t)(i % 10);
  check(brim_exec_load(r->exec, &r->plan->program[0], value, label));
  free(value);
  free(label);
}

static void run_step(run *r)
{
  brim_step step = {.seed = 1,
                    .step = r->steps++,
                    .loss_scale = 1.0 / (double)r->plan->request.shape[0].batch,
                    .norm_groups = r->plan->request.shape[0].batch / 4,
                    .lr = 1e-4,
                    .gradient_scale = 1};
  load_samples(r);
  check(brim_exec_zero_gradients(r->exec));
  check(brim_exec_zero_metrics(r->exec));
  check(brim_exec_run(r->exec, &r->plan->program[0], &step, NULL));
  check(brim_exec_run(r->exec, brim_plan_program(r->plan, BRIM_PROGRAM_UPDATE, 0), &step, NULL));
}

static void time_round(run *r, int round, int steps)
{
  const double start = processor_seconds();
  for (int i = 0; i < steps; i++) run_step(r);
  r->seconds[round] = (processor_seconds() - start) / steps;
}

static void open_run(run *r, const brim_plan_request *request)
{
  check(brim_plan_create(request, &r->plan));
  check(brim_exec_open(r->plan, 0, &r->exec));
  check(brim_initialize_parameters(r->exec, &r->plan->program[0], 1));
}

static void close_run(run *r)
{
  brim_exec_close(r->exec);
  brim_plan_free(r->plan);
}

static bool learned_the_same(const run *a, const run *b)
{
  const brim_graph *g = a->plan->program[0].graph, *h = b->plan->program[0].graph;
  bool same = g->parameter_count == h->parameter_count;
  for (size_t i = 0; i < g->parameter_count && same; i++) {
    const brim_tensor *t = g->parameter[i].value;
    char *x = malloc(t->bytes), *y = malloc(t->bytes);
    check(brim_exec_read(a->exec, &a->plan->program[0], t, x));
    check(brim_exec_read(b->exec, &b->plan->program[0], h->parameter[i].value, y));
    same = memcmp(x, y, t->bytes) == 0;
    free(x);
    free(y);
  }
  return same;
}

/* ---- figures ---- */

static void predict(run *r, size_t count, const brim_device_info *device)
{
  static const brim_profile_subject subject = {.backend = "cpu", .device = "", .threads = 1};
  const brim_rates rates = brim_rates_of(device);
  brim_profile *profile = NULL;
  check(brim_profile_open(NULL, &subject, &profile));
  for (size_t i = 0; i < count; i++) check(brim_timing_run(profile, &rates, r[i].plan, 0));
  for (size_t i = 0; i < count; i++) {
    brim_prediction p = {0};
    brim_predict_program(profile, &rates, &r[i].plan->program[0], 1, &p);
    brim_predict_program(profile, &rates, brim_plan_program(r[i].plan, BRIM_PROGRAM_UPDATE, 0), 1, &p);
    r[i].predicted = p.seconds;
  }
  brim_profile_close(profile);
}

static int compare_doubles(const void *x, const void *y)
{
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* Sorts the values; returns the value at the quantile `share`. */
static double quantile(double *value, int count, double share)
{
  qsort(value, (size_t)count, sizeof *value, compare_doubles);
  return value[(int)(share * (count - 1) + 0.5)];
}

static void print_row(const char *name, run r[2], const setting *s)
{
  double more[ROUNDS_MAX];
  for (int i = 0; i < s->rounds; i++) more[i] = 100 * (r[1].seconds[i] / r[0].seconds[i] - 1);
  const double middle = quantile(more, s->rounds, 0.5), low = quantile(more, s->rounds, 0.25),
               high = quantile(more, s->rounds, 0.75);
  const double none = quantile(r[0].seconds, s->rounds, 0.5), tight = quantile(r[1].seconds, s->rounds, 0.5);
  const double mib = 1.0 / (1 << 20);
  const double least = 100 * (quantile(r[1].seconds, s->rounds, 0) / quantile(r[0].seconds, s->rounds, 0) - 1);
  printf("%-36s %7.2f -> %6.2f MiB (%2.0f %%)  work %5.1f %%  predicted %5.1f %%  measured %5.1f %% (%.1f to %.1f; "
         "least %.1f)  "
         "%7.2f -> %7.2f ms  %s\n",
         name, mib * (double)transient_of(r[0].plan), mib * (double)transient_of(r[1].plan),
         100 * (double)transient_of(r[1].plan) / (double)transient_of(r[0].plan),
         100 * brim_recompute_share(&r[1].plan->program[0]), 100 * (r[1].predicted / r[0].predicted - 1), middle, low,
         high, least, 1e3 * none, 1e3 * tight, learned_the_same(&r[0], &r[1]) ? "same bits" : "OTHER BITS");
  fflush(stdout);
}

static void compare(const char *name, brim_plan_request request, const brim_device_info *device, const setting *s)
{
  run r[2] = {{0}};
  open_run(&r[0], &request);
  request.recompute = BRIM_RECOMPUTE_AUTO;
  request.budget_bytes = r[0].plan->persistent_bytes + (uint64_t)(s->share * (double)transient_of(r[0].plan));
  open_run(&r[1], &request);
  predict(r, 2, device);
  const int steps = 1 + (int)(ROUND_SECONDS / r[1].predicted);
  for (int i = 0; i < 2; i++) time_round(&r[i], 0, 1); /* warms up */
  for (int round = 0; round < s->rounds; round++)
    for (int i = 0; i < 2; i++) time_round(&r[(round + i) % 2], round, steps);
  if (r[0].steps != r[1].steps) exit(1);
  print_row(name, r, s);
  close_run(&r[0]);
  close_run(&r[1]);
}

/* ---- models ---- */

static brim_plan_request request_of_vit(const loaded *vit, const loaded *cpu, int64_t batch)
{
  return (brim_plan_request){.graph = {.model = vit->plugin->ops,
                                       .model_self = vit->self,
                                       .loss.op = "softmax_cross_entropy",
                                       .sample = {3, {1, VIT_SIDE, VIT_SIDE}},
                                       .classes = 10,
                                       .norm_group = 4,
                                       .real = BRIM_DTYPE_F32,
                                       .fuse = BRIM_FUSE_ALL},
                             .backend = cpu->plugin->ops,
                             .backend_self = cpu->self,
                             .update = {.op = "sgd", .state_count = 1},
                             .shape = {{BRIM_PROGRAM_TRAIN, batch}},
                             .shape_count = 1};
}

static void compare_deep(const loaded *cpu, const brim_device_info *device, const setting *s)
{
  static const int depths[] = {12, 24, 48};
  for (size_t m = 0; m < DEEP_MODELS; m++)
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
      char name[64];
      deep d = deep_models[m];
      d.blocks = depths[i];
      snprintf(name, sizeof name, "%s x %d", d.name, d.blocks);
      compare(name, request_of_deep(&d, cpu->plugin->ops, cpu->self, s->batch), device, s);
    }
}

int main(int argc, char **argv)
{
  setting s = {.rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 15,
               .batch = argc > 2 ? strtol(argv[2], NULL, 10) : 8,
               .share = argc > 3 ? strtod(argv[3], NULL) : 1.0 / 3};
  loaded cpu, vit;
  brim_device_info device;
  if (s.rounds < 1 || s.rounds > ROUNDS_MAX || s.batch < 4 || s.batch % 4 != 0) {
    fprintf(stderr, "bench_recompute: rounds from 1 to %d, a batch of fours\n", ROUNDS_MAX);
    return 1;
  }
  if (!load_plugin(&cpu, "backend", "cpu", "{threads: 1}") || !load_plugin(&vit, "model", "vit", VIT)) return 1;
  check(((const brim_backend_ops *)cpu.plugin->ops)->describe(cpu.self, 0, &device));
  printf("%s, 1 thread; micro-batch %lld, %d rounds; none -> auto within %.0f %% of the activations; vit " VIT "\n",
         device.name, (long long)s.batch, s.rounds, 100 * s.share);
  compare("vit, 12 blocks", request_of_vit(&vit, &cpu, s.batch), &device, &s);
  compare_deep(&cpu, &device, &s);
  unload_plugin(&vit);
  unload_plugin(&cpu);
  return 0;
}
