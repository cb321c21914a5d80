/* `brim export --merge` of a language model with low-rank adapters writes an equivalent model: a plain gpt2 with these
 * weights, in Hugging Face's layout, has the same logits. Whole runs, on the reference backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "builtin/builtin.h"
#include "export/merge.h"
#include "scratch.h"
#include "train/run.h"
#include "train/trainer.h"

#define LENGTH 12
#define VOCABULARY 256
#define WORDS_MAX 32
#define SIZES(group) group ".layers=2", group ".heads=2", group ".width=16", group ".context=12"

static brim_registry *registry;
static const char *const searched[] = {BRIM_BUILD_DIR "/share/brim/configs"};

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

static brim_config *load(const char *file, const char *const *words, size_t count)
{
  const brim_config_request request = {.search = searched,
                                       .search_count = 1,
                                       .file = file,
                                       .overrides = words,
                                       .override_count = count,
                                       .first_argument = 1};
  brim_config *config = NULL;
  must(brim_config_load(&request, registry, &config));
  return config;
}

/* `words` end with NULL. */
static void train(const char *dir, const char *weights, const char *const *words)
{
  char run[SCRATCH_PATH * 2], from[SCRATCH_PATH * 2], path[SCRATCH_PATH * 2];
  const char *all[WORDS_MAX] = {"dataset=text",
                                "dataset.context=12",
                                "backend=reference",
                                "memory.timing=false",
                                "training.batch_size=8",
                                "training.num_workers=0",
                                ("claims.dir=" BRIM_BUILD_DIR "/claims-merge")};
  size_t count = 7;
  snprintf(run, sizeof run, "run.dir=%s", scratch("%s", dir));
  snprintf(path, sizeof path, "dataset.path=%s", scratch("a.txt"));
  snprintf(from, sizeof from, "model.weights=%s", weights ? scratch("%s", weights) : "");
  all[count++] = run;
  all[count++] = path;
  all[count++] = from;
  for (size_t i = 0; words[i]; i++) all[count++] = words[i];
  brim_config *config = load(NULL, all, count);
  must(brim_run(&(brim_run_options){.config = config, .quiet = true, .start = brim_now()}));
  brim_config_free(config);
}

/* A run, opened again as it was trained. */
typedef struct opened {
  brim_config *config;
  brim_drive *drive;
  char checkpoint[SCRATCH_PATH];
} opened;

static opened open_run(const char *dir)
{
  opened o;
  o.config = load(scratch("%s/config.yaml", dir), NULL, 0);
  snprintf(o.checkpoint, sizeof o.checkpoint, "%s", scratch("%s/checkpoints/last", dir));
  must(brim_drive_open(o.config, &(brim_setup_options){.whole = true, .no_timing = true}, &o.drive));
  return o;
}

static void close_run(opened *o)
{
  brim_drive_close(o->drive);
  brim_config_free(o->config);
}

static void merge(const char *dir, const char *file)
{
  opened o = open_run(dir);
  brim_arena arena = {0};
  brim_parameters trained, merged;
  const brim_weights_map *map;
  must(brim_parameters_read(&arena, o.checkpoint, &trained));
  must(brim_merge(o.drive->setup, o.checkpoint, &trained, &arena, &merged));
  must(brim_export_choose(&arena, &(brim_weights_search){searched, 1}, "hf", &merged, &map));
  assert_string_equal(map->name, "hf_gpt2");
  must(brim_export_write(&merged, map, 0, NULL, scratch("%s", file)));
  brim_parameters_close(&trained);
  brim_arena_release(&arena);
  close_run(&o);
}

static void find_logits(const char *dir, double *logits)
{
  opened o = open_run(dir);
  brim_trainer *t = NULL;
  int32_t tokens[LENGTH], label[LENGTH] = {0};
  for (int i = 0; i < LENGTH; i++) tokens[i] = (37 * i + 11) % VOCABULARY;
  must(brim_trainer_open_evaluation(o.drive, 1, 1, true, o.checkpoint, &t));
  const brim_program *p = brim_plan_program(brim_trainer_plan(t), BRIM_PROGRAM_EVALUATE, 1);
  assert_int_equal(p->graph->kept->bytes, LENGTH * VOCABULARY * sizeof *logits);
  must(brim_exec_load(brim_trainer_exec(t), p, tokens, label));
  must(brim_exec_run(brim_trainer_exec(t), p, &(brim_step){.loss_scale = 1}, NULL));
  must(brim_exec_read(brim_trainer_exec(t), p, p->graph->kept, logits));
  brim_trainer_close(t);
  close_run(&o);
}

static double greatest_difference(const double *a, const double *b)
{
  double greatest = 0;
  for (int i = 0; i < LENGTH * VOCABULARY; i++) greatest = fmax(greatest, fabs(a[i] - b[i]));
  return greatest;
}

static void a_merged_language_model_has_the_same_logits(void **state)
{
  (void)state;
  static double before[LENGTH * VOCABULARY], changed[LENGTH * VOCABULARY], merged[LENGTH * VOCABULARY];
  static const char *const plain[] = {"model=gpt2", SIZES("model"), "training.steps=2", NULL};
  static const char *const still[] = {"model=gpt2",       SIZES("model"),   "optimizer=sgd",
                                      "training.steps=1", "optimizer.lr=0", NULL};
  static const char *const lora[] = {"model=lora",
                                     "backbone=gpt2",
                                     SIZES("backbone"),
                                     "training.steps=12",
                                     "optimizer.lr=0.02",
                                     "model.lora_targets=[c_attn,c_fc,c_proj]",
                                     NULL};
  train("before", NULL, plain);
  train("lora", "before", lora);
  merge("lora", "merged.safetensors");
  train("plain", "merged.safetensors", still);
  find_logits("before", before);
  find_logits("lora", changed);
  find_logits("plain", merged);
  assert_true(greatest_difference(before, changed) > 1e-2);
  const double difference = greatest_difference(changed, merged);
  if (!(difference < 1e-6)) fail_msg("logits differ by %g", difference);
}

static int set_up(void **state)
{
  scratch_setup(state);
  char text[2048];
  for (size_t i = 0; i < sizeof text; i++) text[i] = "the plan of a step is made before it. "[i % 38];
  scratch_write(scratch("a.txt"), text, sizeof text);
  return brim_registry_open(brim_core_plugins, NULL, 0, &registry) == BRIM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
  brim_registry_free(registry);
  return scratch_teardown(state);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_merged_language_model_has_the_same_logits)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
