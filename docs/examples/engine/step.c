/* Trains a small network on two spirals from a C program: builds a graph, plans it exactly and runs steps. */
#include <brim/engine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 1024, MICRO = 256, STEPS = 600 };

/* Input: two numbers for each point; output: two classes. */
static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_input(g);
  x = brim_relu(g, brim_linear(g, "fc1", x, 64));
  x = brim_relu(g, brim_linear(g, "fc2", x, 64));
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static void make_spirals(float *at, int32_t *label)
{
  for (int i = 0; i < POINTS; i++) {
    const double turn = 3.0 * (i / 2) / (POINTS / 2), angle = 2 * turn + 3.14159265 * (i % 2);
    at[2 * i] = (float)(turn / 3 * cos(angle));
    at[2 * i + 1] = (float)(turn / 3 * sin(angle));
    label[i] = i % 2;
  }
}

/* Ends the program with brim's exit status if a call has failed. */
static void check(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "error: %s\n", brim_error_text());
  exit(brim_status_exit(status));
}

static int count_right(brim_training *training, const float *at, const int32_t *label)
{
  static float answer[MICRO][2];
  int right = 0;
  for (int i = 0; i < POINTS; i++) {
    if (i % MICRO == 0) check(brim_engine_answer(training, at + 2 * i, answer[0]));
    right += (answer[i % MICRO][1] > answer[i % MICRO][0]) == (label[i] == 1);
  }
  return right;
}

int main(void)
{
  static float at[2 * POINTS], weight[64 * 2];
  static int32_t label[POINTS];
  const char *const settings[] = {"lr=0.01", NULL};
  const brim_engine_options options = {.size = sizeof options};
  const brim_network network = {.size = sizeof network,
                                .build = build,
                                .sample = {1, {2}},
                                .classes = 2,
                                .batch = POINTS,
                                .micro_batch = MICRO,
                                .optimizer_settings = settings,
                                .answers = 1};
  brim_engine *engine;
  brim_training_plan *plan;
  brim_training *training;
  brim_training_figures figures = {.size = sizeof figures};
  double loss = 0;
  make_spirals(at, label);
  check(brim_engine_open(&options, &engine));
  check(brim_engine_plan(engine, &network, &plan));
  brim_engine_figures(plan, &figures);
  printf("%llu parameters; a step takes %llu bytes\n", (unsigned long long)figures.parameters,
         (unsigned long long)figures.peak_bytes);
  check(brim_engine_place(plan, 1, &training));
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < POINTS; i += MICRO) check(brim_engine_feed(training, at + 2 * i, label + i));
    check(brim_engine_step(training, &loss));
    if (step % 100 == 0) printf("step %d: loss %.4f\n", step, loss);
  }
  printf("%d of %d are right, with a loss of %.4f\n", count_right(training, at, label), POINTS, loss);
  check(brim_engine_fetch(training, "fc1.weight", weight, 64 * 2));
  printf("fc1.weight[0] is %.4f\n", weight[0]);
  brim_engine_unplace(training);
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
  return 0;
}
