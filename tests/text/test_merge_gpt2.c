/* `brim export --merge` of a language model with low-rank adapters writes an equivalent model: a plain gpt2 with these
 * weights, in Hugging Face's layout, has the same logits. Whole runs, on the reference backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "export/merge.h"
#include "train/trainer.h"
#include "trained.h"

#define LENGTH 12
#define SIZES(group) group ".layers=2", group ".heads=2", group ".width=16", group ".context=12"

/* Trains a model into folder `dir`; `words` end with NULL. */
static void train_from(const char *dir, const char *weights, const char *const *words)
{
  char from[SCRATCH_PATH * 2];
  snprintf(from, sizeof from, "model.weights=%s", weights ? scratch("%s", weights) : "");
  const char *const common[] = {"dataset.context=12", "training.batch_size=8",
                                ("claims.dir=" BRIM_BUILD_DIR "/claims-merge"), from, NULL};
  train(dir, common, words);
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
  train_from("before", NULL, plain);
  train_from("lora", "before", lora);
  merge("lora", "merged.safetensors");
  train_from("plain", "merged.safetensors", still);
  find_logits("before", before);
  find_logits("lora", changed);
  find_logits("plain", merged);
  assert_true(greatest_difference(before, changed) > 1e-2);
  const double difference = greatest_difference(changed, merged);
  if (!(difference < 1e-6)) fail_msg("logits differ by %g", difference);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_merged_language_model_has_the_same_logits)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
