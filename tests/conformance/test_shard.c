/* Sharding (graph/shard.h): the plans of all ranks of a job in one process, on the reference backend. The test is the
 * network: it runs the ranks' programs side by side and does their collectives on the arenas. What N ranks train must
 * be what one trains, but for rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/code8.h"
#include "config/settings.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "train/builtin.h"

#define RANKS_MAX 4
#define STEPS 3
#define SAMPLES 48 /* of a step: as many for each rank of 1, 2, 3 and 4 */
#define MICRO 4    /* and of a norm group */
#define CLASSES 5
#define SIZE 12 /* of a side of an image */

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

/* ---- models ---- */

static brim_status build_mlp(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  x = brim_relu(g, brim_linear(g, "fc1", x, 40));
  x = brim_dropout(g, brim_relu(g, brim_linear(g, "fc2", x, 70)), 0.2);
  brim_output(g, brim_linear(g, "fc3", x, brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_cnn(const void *self, brim_graph *g)
{
  (void)self;
  const brim_conv2d_options conv = {.kernel = {3, 3}, .no_bias = true};
  brim_tensor *x = brim_conv2d(g, "conv1", brim_input(g), 6, conv);
  x = brim_relu(g, brim_batch_norm(g, "bn1", x, 1e-5, 0.1));
  x = brim_relu(g, brim_batch_norm(g, "bn2", brim_conv2d(g, "conv2", x, 20, conv), 1e-5, 0.1));
  x = brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}});
  brim_output(g, brim_linear(g, "head", brim_dropout(g, brim_flatten(g, x), 0.1), brim_classes(g)));
  return BRIM_OK;
}

/* A block of a transformer, and a weight that is used three times. */
static brim_status build_tied(const void *self, brim_graph *g)
{
  (void)self;
  const int64_t sequence[] = {brim_shape_of(brim_input(g)).dim[0], SIZE, SIZE};
  brim_tensor *x = brim_linear(g, "stem", brim_reshape(g, brim_input(g), 3, sequence), 24);
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){24, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.2});
  brim_tensor *h = brim_layer_norm(g, "norm", x, 1e-5);
  brim_tensor *q = brim_linear_with(g, "q", h, weight, NULL), *k = brim_linear_with(g, "k", h, weight, NULL);
  x = brim_add(g, x, brim_attention(g, q, k, h, (brim_attention_options){.heads = 4}));
  x = brim_add(g, x, brim_gelu(g, brim_linear_with(g, "up", x, weight, NULL), 0));
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops models[] = {
    {sizeof(brim_model_ops), build_mlp}, {sizeof(brim_model_ops), build_cnn}, {sizeof(brim_model_ops), build_tied}};
enum { MODELS = sizeof models / sizeof models[0] };

/* ---- a job ---- */

/* How a job trains. */
typedef struct how {
  const brim_model_ops *model;
  const brim_plugin *optimizer;
  const char *settings;
  int32_t ranks;
  enum brim_shard shard;
  uint64_t bucket_bytes;
  double clip_norm, ema_decay;
  bool checked, offloaded;
  bool late; /* collectives are done at the last moment, else at the first */
  enum brim_recompute_kind recompute;
} how;

typedef struct job {
  how how;
  loaded backend, optimizer;
  brim_plan *plan[RANKS_MAX];
  brim_exec *exec[RANKS_MAX];
} job;

static brim_plan_request request_of(const job *j, int32_t rank)
{
  const how *h = &j->how;
  brim_plan_request r = {.graph = {.model = h->model,
                                   .loss_op = "softmax_cross_entropy",
                                   .sample = {3, {1, SIZE, SIZE}},
                                   .classes = CLASSES,
                                   .norm_group = MICRO,
                                   .real = BRIM_DTYPE_F64},
                         .backend = j->backend.plugin->ops,
                         .backend_self = j->backend.self,
                         .recompute = h->recompute,
                         .world = {rank, h->ranks, rank, h->ranks},
                         .shard = h->shard,
                         .bucket_bytes = h->bucket_bytes,
                         .shape = {{BRIM_PROGRAM_TRAIN, MICRO}, {BRIM_PROGRAM_EVALUATE, MICRO}},
                         .shape_count = 2};
  brim_optimizer_describe(j->optimizer.plugin->ops, j->optimizer.self, &r.update);
  r.update.scaled = h->clip_norm > 0 || h->checked;
  r.update.max_norm = h->clip_norm;
  r.update.ema_decay = h->ema_decay;
  r.update.checked = h->checked;
  r.update.offloaded = h->offloaded;
  return r;
}

static void load_job(job *j, const how *h)
{
  *j = (job){.how = *h};
  assert_true(load_plugin(&j->backend, "backend", "reference", NULL));
  load_core_plugin(&j->optimizer, h->optimizer, h->settings);
}

static void plan_job(job *j, const how *h)
{
  load_job(j, h);
  for (int32_t r = 0; r < h->ranks; r++) {
    const brim_plan_request request = request_of(j, r);
    must(brim_plan_create(&request, &j->plan[r]));
    must(brim_plan_check(j->plan[r]));
  }
}

static void stop_job(job *j)
{
  for (int32_t r = 0; r < j->how.ranks; r++) {
    brim_exec_close(j->exec[r]);
    brim_plan_free(j->plan[r]);
  }
  unload_plugin(&j->optimizer);
  unload_plugin(&j->backend);
}

/* The same numbers in every run: uniform in [-1, 1). */
static double number(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(*seed >> 11) / (double)((int64_t)1 << 52) - 1;
}

static void write_parameters(brim_exec *exec, const brim_program *p)
{
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *t = p->graph->parameter[i].value;
    const size_t count = (size_t)brim_shape_count(&t->shape);
    double *value = calloc(count, sizeof *value);
    uint64_t seed = i + 1;
    for (size_t k = 0; k < count; k++) value[k] = 0.2 * number(&seed);
    must(brim_exec_write(exec, p, t, value));
    free(value);
  }
}

static void place_job(job *j, const how *h)
{
  plan_job(j, h);
  for (int32_t r = 0; r < h->ranks; r++) {
    must(brim_exec_open(j->plan[r], 0, &j->exec[r]));
    write_parameters(j->exec[r], &j->plan[r]->program[0]);
    if (h->ema_decay > 0) write_parameters(j->exec[r], &j->plan[r]->program[1]);
  }
}

/* ---- the network ---- */

static void *memory_of(const job *j, int32_t rank, uint64_t offset)
{
  const brim_program *p = &j->plan[rank]->program[0];
  const brim_tensor *any = p->graph->parameter[0].value;
  return (char *)brim_exec_pointer(j->exec[rank], p, any) - p->tensor_offset[any->id] + offset;
}

/* What is undefined afterwards is no number. */
static void add_up(const job *j, const uint64_t *offset, uint64_t count, bool scatter)
{
  const int32_t ranks = j->how.ranks;
  const uint64_t part = count / (uint64_t)ranks;
  for (uint64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int32_t r = 0; r < ranks; r++) sum += ((double *)memory_of(j, r, offset[r]))[i];
    for (int32_t r = 0; r < ranks; r++)
      ((double *)memory_of(j, r, offset[r]))[i] = !scatter || i / part == (uint64_t)r ? sum : NAN;
  }
}

static void gather(const job *j, const uint64_t *offset, uint64_t count)
{
  const uint64_t part = count / (uint64_t)j->how.ranks;
  for (int32_t r = 0; r < j->how.ranks; r++)
    for (int32_t from = 0; from < j->how.ranks; from++) {
      const uint64_t at = (uint64_t)from * part * sizeof(double);
      if (from != r)
        memcpy(memory_of(j, r, offset[r] + at), memory_of(j, from, offset[from] + at), part * sizeof(double));
    }
}

static void do_collective(const job *j, uint32_t kind, const uint64_t *offset, uint64_t count)
{
  if (kind == BRIM_ALL_GATHER)
    gather(j, offset, count);
  else
    add_up(j, offset, count, kind == BRIM_REDUCE_SCATTER);
}

static void run_until(job *j, int32_t rank, const brim_program *p, size_t *next, int32_t node, const brim_step *step)
{
  for (; *next < (size_t)node; (*next)++) must(brim_exec_run_node(j->exec[rank], p, *next, step));
}

/* All ranks run the program that is the i-th of their plans; `last`: it is a step's last micro-batch. */
static void run_together(job *j, size_t program, const brim_step step[RANKS_MAX], bool last)
{
  size_t next[RANKS_MAX] = {0}, buckets = last ? j->plan[0]->bucket_count : 0, bucket = 0, c = 0;
  const brim_program *first = &j->plan[0]->program[program];
  while (c < first->collective_count || bucket < buckets) {
    const brim_program_collective *own = c < first->collective_count ? &first->collective[c] : NULL;
    const bool takes_bucket =
        !own || (bucket < buckets && first->bucket_ready[bucket] + 1 < (j->how.late ? own->finish : own->start));
    uint64_t offset[RANKS_MAX];
    for (int32_t r = 0; r < j->how.ranks; r++) {
      const brim_program *p = &j->plan[r]->program[program];
      assert_int_equal(p->collective_count, first->collective_count);
      const brim_program_collective *mine = takes_bucket ? NULL : &p->collective[c];
      if (mine) assert_true(mine->kind == own->kind && mine->count == own->count && mine->dtype == BRIM_DTYPE_F64);
      offset[r] = mine ? mine->offset : j->plan[r]->bucket[bucket].offset;
      run_until(j, r, p, &next[r],
                !mine         ? p->bucket_ready[bucket] + 1
                : j->how.late ? mine->finish
                              : mine->start,
                &step[r]);
    }
    const brim_gradient_bucket *b = &j->plan[0]->bucket[bucket];
    do_collective(j, takes_bucket ? b->kind : own->kind, offset, takes_bucket ? b->count : own->count);
    *(takes_bucket ? &bucket : &c) += 1;
  }
  for (int32_t r = 0; r < j->how.ranks; r++) {
    const brim_program *p = &j->plan[r]->program[program];
    run_until(j, r, p, &next[r], (int32_t)p->graph->node_count, &step[r]);
  }
}

/* ---- training ---- */

static void load_samples(job *j, int32_t rank, int64_t sample)
{
  double value[MICRO * SIZE * SIZE];
  int32_t label[MICRO];
  for (int64_t n = 0; n < MICRO; n++) {
    uint64_t seed = (uint64_t)(sample + n) * 977 + 5;
    label[n] = (int32_t)((sample + n) * 7 % CLASSES);
    for (int i = 0; i < SIZE * SIZE; i++) value[n * SIZE * SIZE + i] = number(&seed) + 0.1 * label[n];
  }
  must(brim_exec_load(j->exec[rank], &j->plan[rank]->program[0], value, label));
}

static size_t index_of(const job *j, enum brim_program_kind kind)
{
  return (size_t)(brim_plan_program(j->plan[0], kind, 0) - j->plan[0]->program);
}

static void train_step(job *j, int number_of_step)
{
  const brim_optimizer_ops *optimizer = j->optimizer.plugin->ops;
  brim_step step[RANKS_MAX] = {{0}};
  const int64_t share = SAMPLES / j->how.ranks;
  for (int32_t r = 0; r < j->how.ranks; r++) {
    step[r] = (brim_step){.seed = 3,
                          .step = (uint64_t)number_of_step,
                          .loss_scale = 1.0 / SAMPLES,
                          .norm_groups = SAMPLES / MICRO,
                          .gradient_scale = 1};
    optimizer->fill(j->optimizer.self, 1, &step[r]);
    must(brim_exec_zero_gradients(j->exec[r]));
    must(brim_exec_zero_metrics(j->exec[r]));
  }
  for (int64_t done = 0; done < share; done += MICRO) {
    for (int32_t r = 0; r < j->how.ranks; r++) {
      step[r].first_sample = r * share + done;
      load_samples(j, r, number_of_step * SAMPLES + step[r].first_sample);
    }
    run_together(j, 0, step, done + MICRO == share);
  }
  if (j->how.checked) run_together(j, index_of(j, BRIM_PROGRAM_CHECK), step, false);
  run_together(j, index_of(j, BRIM_PROGRAM_UPDATE), step, false);
}

/* ---- comparing ---- */

static void *read_tensor(const job *j, int32_t rank, const brim_program *p, const brim_tensor *t)
{
  void *value = malloc(t->bytes);
  must(brim_exec_read(j->exec[rank], p, t, value));
  return value;
}

static void compare(const char *name, const void *got, const void *expected, uint32_t dtype, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    if (dtype == BRIM_DTYPE_U8) {
      assert_int_equal(((const uint8_t *)got)[i], ((const uint8_t *)expected)[i]);
      continue;
    }
    const double a = ((const double *)got)[i], b = ((const double *)expected)[i];
    if (!(fabs(a - b) <= 1e-12)) fail_msg("%s[%lld]: %.17g, not %.17g", name, (long long)i, a, b);
  }
}

static void compare_parameters(const job *a, const job *b, size_t program)
{
  const brim_graph *g = b->plan[0]->program[program].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    void *expected = read_tensor(b, 0, &b->plan[0]->program[program], t);
    for (int32_t r = 0; r < a->how.ranks; r++) {
      const brim_program *p = &a->plan[r]->program[program];
      void *got = read_tensor(a, r, p, p->graph->parameter[i].value);
      compare(t->name, got, expected, t->dtype, brim_shape_count(&t->shape));
      free(got);
    }
    free(expected);
  }
}

/* Of all ranks together each state is there once, from its first element to its last. */
static void compare_states(const job *a, const job *b)
{
  const brim_program *whole = brim_plan_program(b->plan[0], BRIM_PROGRAM_UPDATE, 0);
  for (size_t i = 0; i < whole->graph->state_count; i++) {
    const brim_tensor *t = whole->graph->state[i].tensor;
    const uint32_t element = brim_dtype_bytes(t->dtype);
    char *expected = read_tensor(b, 0, whole, t);
    int64_t there = 0;
    for (int32_t r = 0; r < a->how.ranks; r++) {
      const brim_program *p = brim_plan_program(a->plan[r], BRIM_PROGRAM_UPDATE, 0);
      for (size_t k = 0; k < p->graph->state_count; k++) {
        const brim_state *own = &p->graph->state[k];
        if (strcmp(own->tensor->name, t->name) != 0) continue;
        const int64_t count = brim_shape_count(&own->tensor->shape);
        if (a->how.shard != BRIM_SHARD_NONE) assert_int_equal(own->first, there);
        there += count;
        void *got = read_tensor(a, r, p, own->tensor);
        compare(t->name, got, expected + own->first * element, t->dtype, count);
        free(got);
      }
    }
    assert_int_equal(there, brim_shape_count(&t->shape) * (a->how.shard == BRIM_SHARD_NONE ? a->how.ranks : 1));
    free(expected);
  }
}

static void check(how h)
{
  job many, one;
  place_job(&many, &h);
  h.ranks = 1;
  place_job(&one, &h);
  for (int i = 0; i < STEPS; i++) {
    train_step(&many, i);
    train_step(&one, i);
  }
  compare_parameters(&many, &one, 0);
  if (h.ema_decay > 0) compare_parameters(&many, &one, 1);
  compare_states(&many, &one);
  stop_job(&many);
  stop_job(&one);
}

static void ranks_train_what_one_does(void **state)
{
  (void)state;
  static const uint64_t bucket_bytes[] = {0, 20000, 1 << 20};
  for (size_t m = 0; m < MODELS; m++)
    for (int32_t ranks = 2; ranks <= RANKS_MAX; ranks++)
      for (int shard = BRIM_SHARD_NONE; shard <= BRIM_SHARD_GRADIENTS; shard++)
        for (size_t b = 0; b < 3; b++)
          check((how){.model = &models[m],
                      .optimizer = &brim_optimizer_adamw,
                      .ranks = ranks,
                      .shard = (enum brim_shard)shard,
                      .bucket_bytes = bucket_bytes[b],
                      .late = (b + (size_t)ranks) % 2 == 0});
}

static const struct {
  const brim_plugin *optimizer;
  const char *settings;
  double clip_norm, ema_decay;
  bool checked, offloaded;
  enum brim_recompute_kind recompute;
} ways[] = {
    {&brim_optimizer_sgd, "{lr: 0.05, weight_decay: 0.01, no_decay: '*.bias'}"},
    {&brim_optimizer_lion, "{lr: 0.001}", .ema_decay = 0.9},
    {&brim_optimizer_adamw8bit, "{lr: 0.01}"},
    {&brim_optimizer_adamw8bit, "{lr: 0.01}", .offloaded = true, .clip_norm = 0.1},
    {&brim_optimizer_adam, "{lr: 0.01}", .clip_norm = 0.1, .ema_decay = 0.8},
    {&brim_optimizer_adamw, "{lr: 0.01}", .checked = true, .recompute = BRIM_RECOMPUTE_FULL},
};

static void any_optimizer_and_option_goes_with_sharding(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
    for (size_t m = 0; m < MODELS; m++)
      for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++)
        for (int late = 0; late < 2; late++)
          check((how){.model = &models[m],
                      .optimizer = ways[i].optimizer,
                      .settings = ways[i].settings,
                      .ranks = 3,
                      .shard = (enum brim_shard)shard,
                      .bucket_bytes = 20000,
                      .clip_norm = ways[i].clip_norm,
                      .ema_decay = ways[i].ema_decay,
                      .checked = ways[i].checked,
                      .offloaded = ways[i].offloaded,
                      .recompute = ways[i].recompute,
                      .late = late});
}

/* ---- plans ---- */

/* Slices begin at multiples of a block, and those of all ranks cover each parameter once. */
static void check_slices(const job *j)
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

static void slices_of_all_ranks_are_every_parameter(void **state)
{
  (void)state;
  for (size_t m = 0; m < MODELS; m++)
    for (int32_t ranks = 2; ranks <= RANKS_MAX; ranks++)
      for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++)
        for (uint64_t bucket_bytes = 0; bucket_bytes <= 60000; bucket_bytes += 20000) {
          job j;
          plan_job(&j, &(how){.model = &models[m],
                              .optimizer = &brim_optimizer_adamw,
                              .ranks = ranks,
                              .shard = (enum brim_shard)shard,
                              .bucket_bytes = bucket_bytes});
          check_slices(&j);
          for (int32_t r = 0; r < ranks; r++) {
            assert_true(j.plan[r]->class_bytes[BRIM_ROLE_OPTIMIZER] <= 2 * sharded_bytes(j.plan[r]) / (uint64_t)ranks);
            assert_int_equal(j.plan[r]->class_bytes[BRIM_ROLE_PARAMETER], sharded_bytes(j.plan[r]));
          }
          stop_job(&j);
        }
}

/* One rank shares nothing out, whatever is asked for. */
static void one_rank_has_all(void **state)
{
  (void)state;
  job j;
  plan_job(&j,
           &(how){.model = &models[1], .optimizer = &brim_optimizer_adamw, .ranks = 1, .shard = BRIM_SHARD_GRADIENTS});
  assert_null(j.plan[0]->shards);
  assert_int_equal(j.plan[0]->bucket_count, 0);
  stop_job(&j);
}

/* A bucket's gradients are there only for a while: what is kept of all is a part. */
static void gradients_that_are_shared_out_take_less(void **state)
{
  (void)state;
  uint64_t persistent[3];
  for (int shard = BRIM_SHARD_NONE; shard <= BRIM_SHARD_GRADIENTS; shard++) {
    job j;
    plan_job(&j, &(how){.model = &models[0],
                        .optimizer = &brim_optimizer_sgd,
                        .ranks = 4,
                        .shard = (enum brim_shard)shard,
                        .bucket_bytes = 1000});
    persistent[shard] = j.plan[0]->gradient_bytes;
    if (shard == BRIM_SHARD_GRADIENTS) {
      assert_int_equal(j.plan[0]->program[0].collective_count, j.plan[0]->shards->bucket_count);
      assert_int_equal(j.plan[0]->bucket_count, 0);
    }
    stop_job(&j);
  }
  assert_true(persistent[BRIM_SHARD_GRADIENTS] < persistent[BRIM_SHARD_NONE] / 2);
  assert_true(persistent[BRIM_SHARD_OPTIMIZER] >= persistent[BRIM_SHARD_NONE]);
}

static void refuse(const how *h, bool in_backward, const char *because)
{
  job j;
  load_job(&j, h);
  brim_plan_request r = request_of(&j, 0);
  r.update.in_backward = in_backward;
  assert_int_equal(brim_plan_create(&r, &j.plan[0]), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), because)) fail_msg("%s", brim_error_text());
  unload_plugin(&j.optimizer);
  unload_plugin(&j.backend);
}

static void what_cannot_be_shared_out_is_refused(void **state)
{
  (void)state;
  how h = {.model = &models[0], .optimizer = &brim_optimizer_adafactor, .ranks = 2, .shard = BRIM_SHARD_OPTIMIZER};
  refuse(&h, false, "adafactor");
  h.optimizer = &brim_optimizer_sgd;
  refuse(&h, true, "fused_backward");
  h.shard = BRIM_SHARD_GRADIENTS;
  refuse(&h, true, "fused_backward");
}

/* A gradient of one rank that is no number makes every rank's proof none. */
static void every_rank_hears_of_a_gradient_that_is_not_finite(void **state)
{
  (void)state;
  for (int shard = BRIM_SHARD_OPTIMIZER; shard <= BRIM_SHARD_GRADIENTS; shard++)
    for (int32_t bad = 0; bad < 3; bad++) {
      job j;
      place_job(&j, &(how){.model = &models[1],
                           .optimizer = &brim_optimizer_adamw,
                           .ranks = 3,
                           .shard = (enum brim_shard)shard,
                           .checked = true});
      train_step(&j, 0);
      const brim_shard_bucket *b = &j.plan[bad]->shards->bucket[0];
      *(double *)memory_of(&j, bad, j.plan[bad]->gradient_offset + b->own * sizeof(double)) = INFINITY;
      run_together(&j, index_of(&j, BRIM_PROGRAM_CHECK), (brim_step[RANKS_MAX]){{0}}, false);
      for (int32_t r = 0; r < 3; r++) {
        double proof = 0;
        must(brim_exec_proof(j.exec[r], &proof));
        assert_false(isfinite(proof));
      }
      stop_job(&j);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_of_all_ranks_are_every_parameter),
      cmocka_unit_test(one_rank_has_all),
      cmocka_unit_test(gradients_that_are_shared_out_take_less),
      cmocka_unit_test(what_cannot_be_shared_out_is_refused),
      cmocka_unit_test(every_rank_hears_of_a_gradient_that_is_not_finite),
      cmocka_unit_test(ranks_train_what_one_does),
      cmocka_unit_test(any_optimizer_and_option_goes_with_sharding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
