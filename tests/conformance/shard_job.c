/* See shard_job.h. */
#include "conformance/shard_job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"

#define SAMPLES 24 /* samples of a step: divisible by 1, 2, 3 and 4 ranks */
#define MICRO 2    /* samples of a micro-batch and of a norm group */
#define CLASSES 5
#define SIZE 12 /* side of an image */

void shard_must(brim_status status)
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

/* Builds a block of a transformer, and a weight that is used three times and in slices. */
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
  brim_tensor *row = brim_slice(g, weight, 0, 3, 1), *half = brim_slice(g, weight, 0, 8, SIZE);
  x = brim_mul(g, brim_add(g, x, brim_tanh(g, half)), brim_mul(g, row, row));
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

const brim_model_ops shard_models[SHARD_MODELS] = {
    {sizeof(brim_model_ops), build_mlp}, {sizeof(brim_model_ops), build_cnn}, {sizeof(brim_model_ops), build_tied}};
/* ---- a job ---- */

brim_plan_request shard_request(const shard_job *j, int32_t rank)
{
  const shard_how *h = &j->how;
  brim_plan_request r = {.graph = {.model = h->model,
                                   .loss.op = "softmax_cross_entropy",
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

void shard_load(shard_job *j, const shard_how *h)
{
  *j = (shard_job){.how = *h};
  assert_true(load_plugin(&j->backend, "backend", "reference", NULL));
  load_core_plugin(&j->optimizer, h->optimizer, h->settings);
}

void shard_plan(shard_job *j, const shard_how *h)
{
  shard_load(j, h);
  for (int32_t r = 0; r < h->ranks; r++) {
    const brim_plan_request request = shard_request(j, r);
    shard_must(brim_plan_create(&request, &j->plan[r]));
    shard_must(brim_plan_check(j->plan[r]));
  }
}

void shard_stop(shard_job *j)
{
  for (int32_t r = 0; r < j->how.ranks; r++) {
    brim_exec_close(j->exec[r]);
    brim_plan_free(j->plan[r]);
  }
  unload_plugin(&j->optimizer);
  unload_plugin(&j->backend);
}

/* Draws numbers that are the same in every run, uniform in [-1, 1). */
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
    shard_must(brim_exec_write(exec, p, t, value));
    free(value);
  }
}

void shard_place(shard_job *j, const shard_how *h)
{
  shard_plan(j, h);
  for (int32_t r = 0; r < h->ranks; r++) {
    shard_must(brim_exec_open(j->plan[r], 0, &j->exec[r]));
    write_parameters(j->exec[r], &j->plan[r]->program[0]);
    if (h->ema_decay > 0) write_parameters(j->exec[r], &j->plan[r]->program[1]);
  }
}

/* ---- the network ---- */

void *shard_memory_of(const shard_job *j, int32_t rank, uint64_t offset)
{
  const brim_program *p = &j->plan[rank]->program[0];
  const brim_tensor *any = p->graph->parameter[0].value;
  return (char *)brim_exec_pointer(j->exec[rank], p, any) - p->tensor_offset[any->id] + offset;
}

/* Adds up the ranks' values. Sets results to NaN where a collective leaves them undefined. */
static void add_up(const shard_job *j, const uint64_t *offset, uint64_t count, bool scatter)
{
  const int32_t ranks = j->how.ranks;
  const uint64_t part = count / (uint64_t)ranks;
  for (uint64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int32_t r = 0; r < ranks; r++) sum += ((double *)shard_memory_of(j, r, offset[r]))[i];
    for (int32_t r = 0; r < ranks; r++)
      ((double *)shard_memory_of(j, r, offset[r]))[i] = !scatter || i / part == (uint64_t)r ? sum : NAN;
  }
}

static void gather(const shard_job *j, const uint64_t *offset, uint64_t count)
{
  const uint64_t part = count / (uint64_t)j->how.ranks;
  for (int32_t r = 0; r < j->how.ranks; r++)
    for (int32_t from = 0; from < j->how.ranks; from++) {
      const uint64_t at = (uint64_t)from * part * sizeof(double);
      if (from != r)
        memcpy(shard_memory_of(j, r, offset[r] + at), shard_memory_of(j, from, offset[from] + at),
               part * sizeof(double));
    }
}

static void do_collective(const shard_job *j, uint32_t kind, const uint64_t *offset, uint64_t count)
{
  if (kind == BRIM_ALL_GATHER)
    gather(j, offset, count);
  else
    add_up(j, offset, count, kind == BRIM_REDUCE_SCATTER);
}

static void run_until(shard_job *j, int32_t rank, const brim_program *p, size_t *next, int32_t node,
                      const brim_step *step)
{
  for (; *next < (size_t)node; (*next)++) shard_must(brim_exec_run_node(j->exec[rank], p, *next, step));
}

void shard_run_together(shard_job *j, size_t program, const brim_step step[SHARD_RANKS_MAX], bool last)
{
  size_t next[SHARD_RANKS_MAX] = {0}, buckets = last ? j->plan[0]->bucket_count : 0, bucket = 0, c = 0;
  const brim_program *first = &j->plan[0]->program[program];
  while (c < first->collective_count || bucket < buckets) {
    const brim_program_collective *own = c < first->collective_count ? &first->collective[c] : NULL;
    const bool takes_bucket =
        !own || (bucket < buckets && first->bucket_ready[bucket] + 1 < (j->how.late ? own->finish : own->start));
    uint64_t offset[SHARD_RANKS_MAX];
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

static void load_samples(shard_job *j, int32_t rank, int64_t sample)
{
  double value[MICRO * SIZE * SIZE];
  int32_t label[MICRO];
  for (int64_t n = 0; n < MICRO; n++) {
    uint64_t seed = (uint64_t)(sample + n) * 977 + 5;
    label[n] = (int32_t)((sample + n) * 7 % CLASSES);
    for (int i = 0; i < SIZE * SIZE; i++) value[n * SIZE * SIZE + i] = number(&seed) + 0.1 * label[n];
  }
  shard_must(brim_exec_load(j->exec[rank], &j->plan[rank]->program[0], value, label));
}

size_t shard_index_of(const shard_job *j, enum brim_program_kind kind)
{
  return (size_t)(brim_plan_program(j->plan[0], kind, 0) - j->plan[0]->program);
}

void shard_train_step(shard_job *j, int number_of_step)
{
  brim_step step[SHARD_RANKS_MAX] = {{0}};
  const int64_t share = SAMPLES / j->how.ranks;
  for (int32_t r = 0; r < j->how.ranks; r++) {
    step[r] = (brim_step){.seed = 3,
                          .step = (uint64_t)number_of_step,
                          .loss_scale = 1.0 / SAMPLES,
                          .norm_groups = SAMPLES / MICRO,
                          .gradient_scale = 1};
    shard_must(brim_optimizer_fill(j->optimizer.plugin, j->optimizer.self, 1, &step[r]));
    shard_must(brim_exec_zero_gradients(j->exec[r]));
    shard_must(brim_exec_zero_metrics(j->exec[r]));
  }
  for (int64_t done = 0; done < share; done += MICRO) {
    for (int32_t r = 0; r < j->how.ranks; r++) {
      step[r].first_sample = r * share + done;
      load_samples(j, r, number_of_step * SAMPLES + step[r].first_sample);
    }
    shard_run_together(j, 0, step, done + MICRO == share);
  }
  if (j->how.checked) shard_run_together(j, shard_index_of(j, BRIM_PROGRAM_CHECK), step, false);
  shard_run_together(j, shard_index_of(j, BRIM_PROGRAM_UPDATE), step, false);
}

/* ---- comparing ---- */

static void *read_tensor(const shard_job *j, int32_t rank, const brim_program *p, const brim_tensor *t)
{
  void *value = malloc(t->bytes);
  shard_must(brim_exec_read(j->exec[rank], p, t, value));
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

void shard_compare_parameters(const shard_job *a, const shard_job *b, size_t program)
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

/* Checks that each element of a state exists once across all ranks, with the right value. */
void shard_compare_states(const shard_job *a, const shard_job *b)
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
