#include "cuda/machine.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const brim_kernel *find_kernel(const machine *m, const char *op)
{
  for (const brim_kernel *const *k = m->ops->kernels; k < m->ops->kernels_end; k++)
    if (strcmp((*k)->op, op) == 0) return *k;
  fail_msg("the backend has no kernel for %s", op);
  return NULL;
}

static uint64_t take(machine *m, uint64_t bytes)
{
  const uint64_t at = m->bytes, alignment = m->ops->alignment;
  m->bytes += (bytes + alignment - 1) / alignment * alignment;
  return at;
}

float value_of(const brim_tensor *t, uint64_t i)
{
  uint64_t x = ((uint64_t)t->id << 40) + i + 1;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
  const double unit = (double)(x >> 40) / (1 << 24);
  return (float)(t->role == BRIM_ROLE_OPTIMIZER ? unit : 2 * unit - 1);
}

void write_tensor(machine *m, const brim_tensor *t, const void *values)
{
  OK(m->ops->upload(m->self, m->memory[t->id], values, t->bytes));
}

void *read_tensor(machine *m, const brim_tensor *t)
{
  void *values = malloc(t->bytes);
  OK(m->ops->download(m->self, values, m->memory[t->id], t->bytes));
  return values;
}

static void fill(machine *m)
{
  for (size_t i = 0; i < m->g->tensor_count; i++) {
    const brim_tensor *t = m->g->tensor[i];
    char *values = calloc(1, t->bytes);
    for (uint64_t k = 0; t->dtype == BRIM_DTYPE_F32 && k < t->bytes / 4; k++)
      ((float *)(void *)values)[k] = value_of(t, k);
    write_tensor(m, t, values);
    free(values);
  }
}

void open_machine(machine *m, brim_graph *g, const char *settings, uint64_t feed_bytes)
{
  *m = (machine){.g = g};
  if (g->status != BRIM_OK) fail_msg("%s", g->error);
  assert_true(load_plugin_from(&m->plugin, "emulated", "backend", "cuda", settings));
  m->ops = m->plugin.plugin->ops;
  m->self = m->plugin.self;
  OK(m->ops->select(m->self, 0));
  m->memory = calloc(g->tensor_count + 1, sizeof *m->memory);
  m->launch = calloc(g->node_count + 1, sizeof *m->launch);
  m->kernel = calloc(g->node_count + 1, sizeof *m->kernel);
  uint64_t *offset = calloc(g->tensor_count + g->node_count + 1, sizeof *offset);
  m->bytes = m->ops->reserve_bytes(m->self, feed_bytes);
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_program_info info = {.batch = g->batch, .training = 1};
    brim_kernel_need need = {0};
    brim_node *n = g->node[i];
    m->kernel[i] = find_kernel(m, n->op);
    m->launch[i].node = n;
    if (m->kernel[i]->prepare) OK(m->kernel[i]->prepare(m->self, &info, n, &need, &m->launch[i].state));
    offset[g->tensor_count + i] = take(m, need.workspace_bytes);
  }
  for (size_t i = 0; i < g->tensor_count; i++) offset[i] = take(m, g->tensor[i]->bytes);
  void *base = NULL;
  OK(m->ops->place(m->self, 0, m->bytes, &base));
  m->base = base;
  OK(m->ops->open_feed(m->self, base, feed_bytes));
  for (size_t i = 0; i < g->tensor_count; i++) m->memory[i] = m->base + offset[i];
  for (size_t i = 0; i < g->node_count; i++) {
    brim_node *n = g->node[i];
    void **in = BRIM_ARENA_NEW(&g->arena, void *, n->in_count + 1);
    void **out = BRIM_ARENA_NEW(&g->arena, void *, n->out_count + 1);
    for (uint32_t k = 0; k < n->in_count; k++) in[k] = m->memory[n->in[k]->id];
    for (uint32_t k = 0; k < n->out_count; k++) out[k] = m->memory[n->out[k]->id];
    m->launch[i].in = in;
    m->launch[i].out = out;
    m->launch[i].workspace = m->base + offset[g->tensor_count + i];
  }
  free(offset);
  fill(m);
}

void close_machine(machine *m)
{
  if (m->record) m->ops->drop_record(m->self, m->record);
  for (size_t i = 0; i < m->g->node_count; i++)
    if (m->kernel[i]->release && m->launch[i].state) m->kernel[i]->release(m->self, m->launch[i].state);
  m->ops->unplace(m->self, m->base, m->bytes);
  brim_graph_free(m->g);
  free(m->memory);
  free(m->launch);
  free(m->kernel);
  unload_plugin(&m->plugin);
}

brim_step make_step(uint64_t step)
{
  const double t = (double)step + 1;
  return (brim_step){.seed = 42 + step,
                     .step = step,
                     .loss_scale = 1,
                     .norm_groups = 1 + (int64_t)step,
                     .lr = 0.01 * t,
                     .weight_decay = 0.1 / t,
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .eps = 1e-8,
                     .momentum = 0.9,
                     .bias_correction1 = 1 - pow(0.9, t),
                     .bias_correction2 = 1 - pow(0.99, t),
                     .gradient_scale = 1 / t,
                     .federated = 0.25 / t,
                     .control = 0.5 / t,
                     .initial_accumulator = step == 0 ? 1e-4 : 0};
}

brim_status try_program(machine *m, brim_step step, const double *proof)
{
  const brim_program_run run = {m->launch, m->kernel, m->g->node_count, &step, proof, &m->record};
  const brim_status status = m->ops->run_program(m->self, &run);
  step = (brim_step){0}; /* the step has been read */
  return status;
}

void run_program(machine *m, brim_step step, const double *proof)
{
  OK(try_program(m, step, proof));
}

uint64_t count_launches(machine *m)
{
  const brim_program_run run = {m->launch, m->kernel, m->g->node_count, NULL, NULL, NULL};
  uint32_t *launches = calloc(run.count + 1, sizeof *launches);
  uint64_t sum = 0;
  const uint64_t before = kernels_run();
  assert_non_null(launches);
  OK(m->ops->count_launches(m->self, &run, launches));
  for (size_t i = 0; i <= run.count; i++) sum += launches[i];
  assert_int_equal(kernels_run(), before);
  free(launches);
  return sum;
}

void run_nodes(machine *m, brim_step step)
{
  for (size_t i = 0; i < m->g->node_count; i++) {
    brim_launch launch = m->launch[i];
    launch.step = &step;
    OK(m->kernel[i]->run(m->self, &launch));
  }
  OK(m->ops->synchronize(m->self));
}

void check_same(machine *a, machine *b)
{
  for (size_t i = 0; i < a->g->tensor_count; i++) {
    const brim_tensor *t = a->g->tensor[i];
    void *x = read_tensor(a, t), *y = read_tensor(b, b->g->tensor[i]);
    if (memcmp(x, y, t->bytes) != 0) fail_msg("'%s' has other bits", t->name);
    free(x);
    free(y);
  }
}

uint64_t kernels_run(void)
{
  void *library = dlopen(BRIM_BUILD_DIR "/emulated/lib/brim/plugins/backend/cuda.so", RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  const uint64_t *count = dlsym(library, "emulated_kernels");
  assert_non_null(count);
  const uint64_t kernels = *count;
  dlclose(library);
  return kernels;
}

/* Excludes every third parameter from weight decay. */
static void choose(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  out->nesterov = params != NULL;
  out->no_decay = parameter->id % 3 == 0;
  out->clip = 1;
  out->least = 0.5;
}

static void add_state(brim_update_form *form, uint32_t dtype, int64_t count)
{
  form->state[form->state_count].name = "state";
  form->state[form->state_count].dtype = dtype;
  form->state[form->state_count++].shape = (brim_shape){1, {count}};
}

/* Lists the states that an update needs for a parameter that is a vector. */
static void form_of(const void *params, const brim_tensor *parameter, brim_update_form *out)
{
  const char *op = params;
  const int64_t count = brim_shape_count(&parameter->shape), blocks = brim_code8_blocks(count);
  const bool is_adam = strncmp(op, "adam", 4) == 0 || strcmp(op, "yogi") == 0, has_codes = strcmp(op, "adamw8bit") == 0;
  out->state_count = 0;
  for (int i = 0; i < (is_adam ? 2 : 1); i++) {
    add_state(out, has_codes ? BRIM_DTYPE_U8 : parameter->dtype, count);
    if (has_codes) add_state(out, parameter->dtype, blocks);
  }
}

brim_graph *update_graph(const char *op, int64_t parameters, double max_norm, double ema_decay)
{
  static const int64_t size[] = {1, 3, 4, 40, 4096, 257, 4097, 20001, 5};
  brim_graph *like = brim_graph_create(BRIM_DTYPE_F32, 1, true), *g = NULL;
  char name[32];
  for (int64_t i = 0; i < parameters; i++) {
    const brim_shape shape = {1, {parameters > 100 ? 1 + i % 3 : size[i % 9]}};
    const brim_init init = {BRIM_INIT_UNIFORM, 1};
    snprintf(name, sizeof name, "p%lld", (long long)i);
    if (i % 4 == 3)
      brim_graph_buffer(like, name, &shape, init, 0.1);
    else
      brim_graph_parameter(like, name, &shape, init);
  }
  const brim_update_options options = {.op = op,
                                       .form = form_of,
                                       .attr = choose,
                                       .params = op,
                                       .scaled = max_norm > 0,
                                       .max_norm = max_norm,
                                       .ema_decay = ema_decay};
  OK(brim_graph_build_update(like, &options, &g));
  brim_graph_free(like);
  return g;
}
