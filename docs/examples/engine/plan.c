/* Plans the training of GPT-2 (124 million parameters) in MIB MiB, without allocating them: plan MIB [RECOMPUTE], where
 * RECOMPUTE is 0 to 2. */
#include <brim/engine.h>
#include <stdio.h>
#include <stdlib.h>

static void row(const char *name, uint64_t bytes)
{
  printf("%-12s %10.1f MiB\n", name, (double)bytes / (1 << 20));
}

int main(int argc, char **argv)
{
  const brim_engine_options options = {.size = sizeof options};
  const char *const model[] = {"layers=12", "context=256", NULL};
  const brim_network network = {.size = sizeof network,
                                .model = "gpt2",
                                .settings = model,
                                .sample = {1, {256}},
                                .task = BRIM_TASK_TOKENS,
                                .classes = 50257,
                                .batch = 32,
                                .recompute = argc > 2 ? atoi(argv[2]) : 0};
  brim_engine *engine = NULL;
  brim_training_plan *plan = NULL;
  brim_training_figures f = {.size = sizeof f};
  brim_status status = brim_engine_open(&options, &engine);
  if (status == BRIM_OK && argc > 1)
    status = brim_engine_plan_within(engine, &network, strtoull(argv[1], NULL, 10) << 20, &plan);
  if (status == BRIM_OK && argc > 1) {
    brim_engine_figures(plan, &f);
    printf("%llu parameters, micro-batches of %lld\n\n", (unsigned long long)f.parameters, (long long)f.micro_batch);
    row("parameters", f.parameter_bytes);
    row("gradients", f.gradient_bytes);
    row("optimizer", f.optimizer_bytes);
    row("activations", f.activation_bytes);
    row("workspace", f.workspace_bytes);
    row("data", f.data_bytes);
    row("peak", f.peak_bytes);
    printf("\nat the peak: %s\n", f.peak_node);
  }
  if (status != BRIM_OK) fprintf(stderr, "error: %s\n", brim_error_text());
  if (argc < 2) fprintf(stderr, "usage: plan MIB [0|1|2]\n");
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
  return argc < 2 ? 2 : brim_status_exit(status);
}
