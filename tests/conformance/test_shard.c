/* Tests sharding (graph/shard.h): N ranks must train like one, up to rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/code8.h"
#include "builtin/builtin.h"
#include "conformance/shard_job.h"

#define STEPS 3

static void train(shard_job *j, const shard_how *h)
{
  shard_place(j, h);
  for (int i = 0; i < STEPS; i++) shard_train_step(j, i);
}

/* Trains a job of one rank, which shards nothing. The tests compare the jobs of several ranks with it. */
static void train_one(shard_job *one, shard_how h)
{
  h.ranks = 1;
  train(one, &h);
}

static void check(const shard_how *h, const shard_job *one)
{
  shard_job many;
  train(&many, h);
  shard_compare_parameters(&many, one, 0);
  if (h->ema_decay > 0) shard_compare_parameters(&many, one, 1);
  shard_compare_states(&many, one);
  shard_stop(&many);
}

static void ranks_train_as_one_does(void **state)
{
  static const uint64_t bucket_bytes[] = {0, 20000, 1 << 20};
  for (size_t m = 0; m < SHARD_MODELS; m++) {
    shard_how h = {.model = &shard_models[m], .optimizer = &brim_optimizer_adamw};
    shard_job one;
    train_one(&one, h);
    for (h.ranks = 2; h.ranks <= SHARD_RANKS_MAX; h.ranks++)
      for (int shard = BRIM_SHARD_NONE; shard <= BRIM_SHARD_GRADIENTS; shard++)
        for (size_t b = 0; b < 3; b++) {
          if (BENCH_SHARE > 1 && b != (m + (size_t)h.ranks + (size_t)shard) % 3)
            continue; /* runs a third of the cases; each size is among them */
          h.shard = (enum brim_shard)shard;
          h.bucket_bytes = bucket_bytes[b];
          h.late = (b + (size_t)h.ranks) % 2 == 0;
          check(&h, &one);
        }
    shard_stop(&one);
  }
}

static const struct {
  const brim_plugin *optimizer;
  const char *settings;
  double clip_norm, ema_decay;
  bool checked, offloaded;
  enum brim_recompute_kind recompute;
} ways[] = {
    {&brim_optimizer_sgd, "{lr: 0.05, weight_decay: 0.01, no_decay: '*.bias'}"},
    {&brim_optimizer_yogi, "{lr: 0.01}", .clip_norm = 0.1},
    {&brim_optimizer_adagrad, "{lr: 0.01, initial_accumulator: 0.1}", .offloaded = true},
    {&brim_optimizer_lion, "{lr: 0.001}", .ema_decay = 0.9},
    {&brim_optimizer_adamw8bit, "{lr: 0.01}"},
    {&brim_optimizer_adamw8bit, "{lr: 0.01}", .offloaded = true, .clip_norm = 0.1},
    {&brim_optimizer_adam, "{lr: 0.01}", .clip_norm = 0.1, .ema_decay = 0.8},
    {&brim_optimizer_adamw, "{lr: 0.01}", .checked = true, .recompute = BRIM_RECOMPUTE_FULL},
};

static void sharding_works_with_every_optimizer_and_option(void **state)
{
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
    for (size_t m = 0; m < SHARD_MODELS; m++) {
      if (BENCH_SHARE > 1 && m != i % SHARD_MODELS) continue;
      shard_how h = {.model = &shard_models[m],
                     .optimizer = ways[i].optimizer,
                     .settings = ways[i].settings,
                     .ranks = 3,
                     .bucket_bytes = 20000,
                     .clip_norm = ways[i].clip_norm,
                     .ema_decay = ways[i].ema_decay,
                     .checked = ways[i].checked,
                     .offloaded = ways[i].offloaded,
                     .recompute = ways[i].recompute,
                     .late = (i + m) % 2 == 0};
      shard_job one;
      train_one(&one, h);
      for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++) {
        h.shard = (enum brim_shard)shard;
        check(&h, &one);
      }
      shard_stop(&one);
    }
}

/* ---- plans ---- */

/* Checks that slices begin at multiples of a block, and that the slices of all ranks together cover each parameter
 * once. */
static void check_slices(const shard_job *j)
{
  const brim_graph *whole = j->plan[0]->program[0].graph;
  for (size_t i = 0; i < whole->parameter_count; i++) {
    int64_t there = 0;
    if (whole->parameter[i].is_buffer) continue;
    for (int32_t r = 0; r < j->how.ranks; r++) {
      const brim_program *p = brim_plan_program(j->plan[r], BRIM_PROGRAM_UPDATE, 0);
      const brim_own_slice *slice = &p->graph->slice[i];
      if (!slice->value) continue;
      assert_int_equal(slice->first, there);
      assert_int_equal(slice->first % BRIM_CODE8_BLOCK, 0);
      const brim_program *first = &j->plan[r]->program[0];
      assert_int_equal(p->tensor_offset[slice->value->id], first->tensor_offset[first->graph->parameter[i].value->id] +
                                                               (uint64_t)slice->first * sizeof(double));
      there += brim_shape_count(&slice->value->shape);
    }
    assert_int_equal(there, brim_shape_count(&whole->parameter[i].value->shape));
  }
}

static uint64_t sharded_bytes(const brim_plan *plan)
{
  return plan->shards->value_count * sizeof(double);
}

static void slices_of_all_ranks_cover_every_parameter(void **state)
{
  for (size_t m = 0; m < SHARD_MODELS; m++)
    for (int32_t ranks = 2; ranks <= SHARD_RANKS_MAX; ranks++)
      for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++)
        for (uint64_t bucket_bytes = 0; bucket_bytes <= 60000; bucket_bytes += 20000) {
          shard_job j;
          shard_plan(&j, &(shard_how){.model = &shard_models[m],
                                      .optimizer = &brim_optimizer_adamw,
                                      .ranks = ranks,
                                      .shard = (enum brim_shard)shard,
                                      .bucket_bytes = bucket_bytes});
          check_slices(&j);
          for (int32_t r = 0; r < ranks; r++) {
            assert_true(j.plan[r]->class_bytes[BRIM_ROLE_OPTIMIZER] <= 2 * sharded_bytes(j.plan[r]) / (uint64_t)ranks);
            assert_int_equal(j.plan[r]->class_bytes[BRIM_ROLE_PARAMETER], sharded_bytes(j.plan[r]));
          }
          shard_stop(&j);
        }
}

/* One rank shards nothing, whatever the setting. */
static void a_single_rank_has_everything(void **state)
{
  shard_job j;
  shard_plan(&j, &(shard_how){.model = &shard_models[1],
                              .optimizer = &brim_optimizer_adamw,
                              .ranks = 1,
                              .shard = BRIM_SHARD_GRADIENTS});
  assert_null(j.plan[0]->shards);
  assert_int_equal(j.plan[0]->bucket_count, 0);
  shard_stop(&j);
}

/* The gradients of a bucket exist only for a while, and a rank keeps only its shard of them. */
static void sharded_gradients_need_less_memory(void **state)
{
  uint64_t persistent[3];
  for (int shard = BRIM_SHARD_NONE; shard <= BRIM_SHARD_GRADIENTS; shard++) {
    shard_job j;
    shard_plan(&j, &(shard_how){.model = &shard_models[0],
                                .optimizer = &brim_optimizer_sgd,
                                .ranks = 4,
                                .shard = (enum brim_shard)shard,
                                .bucket_bytes = 1000});
    persistent[shard] = j.plan[0]->gradient_bytes;
    if (shard == BRIM_SHARD_GRADIENTS) {
      assert_int_equal(j.plan[0]->program[0].collective_count, j.plan[0]->shards->bucket_count);
      assert_int_equal(j.plan[0]->bucket_count, 0);
    }
    shard_stop(&j);
  }
  assert_true(persistent[BRIM_SHARD_GRADIENTS] < persistent[BRIM_SHARD_NONE] / 2);
  assert_true(persistent[BRIM_SHARD_OPTIMIZER] >= persistent[BRIM_SHARD_NONE]);
}

static void refuse(const shard_how *h, bool in_backward, const char *because)
{
  shard_job j;
  shard_load(&j, h);
  brim_plan_request r = shard_request(&j, 0);
  r.update.in_backward = in_backward;
  assert_int_equal(brim_plan_create(&r, &j.plan[0]), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), because)) fail_msg("%s", brim_error_text());
  unload_plugin(&j.optimizer);
  unload_plugin(&j.backend);
}

static void states_that_cannot_be_sharded_are_refused(void **state)
{
  shard_how h = {
      .model = &shard_models[0], .optimizer = &brim_optimizer_adafactor, .ranks = 2, .shard = BRIM_SHARD_OPTIMIZER};
  refuse(&h, false, "adafactor");
  h.optimizer = &brim_optimizer_sgd;
  refuse(&h, true, "fused_backward");
  h.shard = BRIM_SHARD_GRADIENTS;
  refuse(&h, true, "fused_backward");
}

/* If a gradient is not finite on one rank, the proof of every rank is not finite. */
static void every_rank_detects_a_gradient_that_is_not_finite(void **state)
{
  for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++)
    for (int32_t bad = 0; bad < 3; bad++) {
      shard_job j;
      shard_place(&j, &(shard_how){.model = &shard_models[1],
                                   .optimizer = &brim_optimizer_adamw,
                                   .ranks = 3,
                                   .shard = (enum brim_shard)shard,
                                   .checked = true});
      shard_train_step(&j, 0);
      const brim_shard_bucket *b = &j.plan[bad]->shards->bucket[0];
      *(double *)shard_memory_of(&j, bad, j.plan[bad]->gradient_offset + b->own * sizeof(double)) = INFINITY;
      shard_run_together(&j, shard_index_of(&j, BRIM_PROGRAM_CHECK), (brim_step[SHARD_RANKS_MAX]){{0}}, false);
      for (int32_t r = 0; r < 3; r++) {
        double proof = 0;
        shard_must(brim_exec_proof(j.exec[r], &proof));
        assert_false(isfinite(proof));
      }
      shard_stop(&j);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_of_all_ranks_cover_every_parameter),
      cmocka_unit_test(a_single_rank_has_everything),
      cmocka_unit_test(sharded_gradients_need_less_memory),
      cmocka_unit_test(states_that_cannot_be_sharded_are_refused),
      cmocka_unit_test(every_rank_detects_a_gradient_that_is_not_finite),
      cmocka_unit_test(ranks_train_as_one_does),
      cmocka_unit_test(sharding_works_with_every_optimizer_and_option),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
