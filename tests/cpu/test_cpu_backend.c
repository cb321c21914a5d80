/* Tests the cpu backend as a plugin: kernels on hand-made tensors, in every memory order and on every instruction set
 * of this processor; the device's limits; and the whole cnn on different numbers of threads and micro-batches, which
 * must give the same bits. tests/conformance compares all operations with the reference. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/random.h"
#include "conformance/load.h"
#include "cpu/isa.h"
#include "exec/exec.h"

/* ---- a backend ---- */

static const brim_backend_ops *ops_of(const loaded *l)
{
  return l->plugin->ops;
}

static void open_backend(loaded *l, const char *settings)
{
  assert_true(load_plugin(l, "backend", "cpu", settings));
}

/* Loads cpu with an instruction set; returns false if this processor lacks it. */
static bool open_isa(loaded *l, const char *isa, int threads)
{
  char settings[64];
  if (!has_isa(isa)) return false;
  snprintf(settings, sizeof settings, "{threads: %d, isa: %s}", threads, isa);
  open_backend(l, settings);
  return true;
}

static const brim_kernel *kernel_of(const loaded *l, const char *op)
{
  for (const brim_kernel *const *k = ops_of(l)->kernels; k < ops_of(l)->kernels_end; k++)
    if (strcmp((*k)->op, op) == 0) return *k;
  fail_msg("no kernel %s", op);
  return NULL;
}

/* ---- hand-made tensors ---- */

typedef struct value {
  brim_tensor t;
  void *at;
} value;

static value make(uint32_t dtype, int32_t rank, const int64_t *dim, int64_t block)
{
  value v = {.t = {.dtype = dtype, .name = "v", .producer = -1, .channel_block = block, .shape = {.rank = rank}}};
  for (int32_t i = 0; i < rank; i++) v.t.shape.dim[i] = dim[i];
  v.t.bytes = (uint64_t)brim_shape_count(&v.t.shape) * brim_dtype_bytes(dtype);
  v.at = aligned_alloc(64, (v.t.bytes + 127) / 64 * 64);
  assert_non_null(v.at);
  memset(v.at, 0xFF, v.t.bytes); /* NaN */
  return v;
}

static value make4(int64_t n, int64_t c, int64_t h, int64_t w, int64_t block)
{
  return make(BRIM_DTYPE_F32, 4, (int64_t[]){n, c, h, w}, block);
}

/* Returns the place of element (n, c, pixel). */
static int64_t place_of(const brim_tensor *t, int64_t n, int64_t c, int64_t pixel)
{
  const int64_t C = t->shape.dim[1], pixels = t->shape.dim[2] * t->shape.dim[3], b = t->channel_block;
  return n * C * pixels + c / b * b * pixels + pixel * b + c % b;
}

static float noise(uint64_t i, uint32_t stream)
{
  return (float)(2 * brim_uniform(brim_random4(3, BRIM_STREAM_DATA, stream, i, 0).v[0]) - 1);
}

/* Writes values that depend only on the logical position. */
static void fill4(value *v, uint32_t stream)
{
  const int64_t C = v->t.shape.dim[1], pixels = v->t.shape.dim[2] * v->t.shape.dim[3];
  for (int64_t n = 0; n < v->t.shape.dim[0]; n++)
    for (int64_t c = 0; c < C; c++)
      for (int64_t i = 0; i < pixels; i++)
        ((float *)v->at)[place_of(&v->t, n, c, i)] = noise((uint64_t)((n * C + c) * pixels + i), stream);
}

static void fill_flat(value *v, uint32_t stream)
{
  for (int64_t i = 0; i < brim_shape_count(&v->t.shape); i++) ((float *)v->at)[i] = noise((uint64_t)i, stream);
}

static const brim_step plain_step = {.seed = 11, .step = 5, .first_sample = 3, .loss_scale = 1};

/* Prepares, realizes, runs and releases one node; outputs take the order that prepare chose. */
static brim_status run(const loaded *l, const char *op, const brim_attr *attr, value *const *in, uint32_t in_count,
                       value *const *out, uint32_t out_count, const brim_step *step)
{
  const brim_kernel *k = kernel_of(l, op);
  brim_tensor *node_in[8], *node_out[8];
  void *in_at[8], *out_at[8];
  brim_node node = {
      .op = op, .name = op, .file = "", .in = node_in, .in_count = in_count, .out = node_out, .out_count = out_count};
  if (attr) node.attr = *attr;
  for (uint32_t i = 0; i < in_count; i++) {
    node.in[i] = &in[i]->t;
    in_at[i] = in[i]->at;
  }
  for (uint32_t i = 0; i < out_count; i++) {
    node.out[i] = &out[i]->t;
    out_at[i] = out[i]->at;
  }
  const brim_program_info program = {.batch = in[0]->t.shape.dim[0], .grain = 16, .training = 1};
  brim_kernel_need need = {0};
  void *state = NULL;
  if (k->prepare) assert_int_equal(k->prepare(l->self, &program, &node, &need, &state), BRIM_OK);
  if (k->realize) assert_int_equal(k->realize(l->self, &node, state), BRIM_OK);
  void *workspace = need.workspace_bytes ? aligned_alloc(64, (need.workspace_bytes + 63) / 64 * 64) : NULL;
  if (workspace) memset(workspace, 0xFF, need.workspace_bytes);
  const brim_launch launch = {
      .node = &node, .state = state, .in = in_at, .out = out_at, .workspace = workspace, .step = step};
  const brim_status status = k->run(l->self, &launch);
  if (k->release) k->release(l->self, state);
  free(workspace);
  return status;
}

/* ---- orders of memory ---- */

static const int64_t blocks_of_48[] = {1, 8, 16, 48};
enum { BLOCKS_OF_48 = sizeof blocks_of_48 / sizeof blocks_of_48[0] };

static void check_relu_grad(const loaded *l, int64_t y_block, int64_t dy_block)
{
  value y = make4(2, 48, 5, 7, y_block), dy = make4(2, 48, 5, 7, dy_block), dx = make4(2, 48, 5, 7, 1);
  fill4(&y, 1);
  fill4(&dy, 2);
  assert_int_equal(run(l, "relu_grad", NULL, (value *[]){&y, &dy}, 2, (value *[]){&dx}, 1, &plain_step), BRIM_OK);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t c = 0; c < 48; c++)
      for (int64_t i = 0; i < 35; i++) {
        const float slope = ((float *)y.at)[place_of(&y.t, n, c, i)], g = ((float *)dy.at)[place_of(&dy.t, n, c, i)];
        assert_true(((float *)dx.at)[place_of(&dx.t, n, c, i)] == (slope > 0 ? g : 0));
      }
  free(y.at);
  free(dy.at);
  free(dx.at);
}

static void test_inputs_of_different_layouts_are_converted(void **state)
{
  for (size_t k = 0; k < 3; k++) {
    loaded l;
    if (!open_isa(&l, isas[k], 2)) continue;
    for (int i = 0; i < BLOCKS_OF_48; i++)
      for (int j = 0; j < BLOCKS_OF_48; j++) check_relu_grad(&l, blocks_of_48[i], blocks_of_48[j]);
    unload_plugin(&l);
  }
}

static void check_pool_grad(const loaded *l, int64_t index_block, int64_t dy_block)
{
  const brim_attr attr = {.pool2d = {.kernel = {3, 2}, .stride = {2, 1}}};
  value x = make4(2, 48, 7, 5, index_block), y = make4(2, 48, 3, 4, 1), dy = make4(2, 48, 3, 4, dy_block);
  value index = make(BRIM_DTYPE_U8, 4, (int64_t[]){2, 48, 3, 4}, 1), dx = make4(2, 48, 7, 5, 1);
  fill4(&x, 1);
  fill4(&dy, 2);
  assert_int_equal(run(l, "max_pool2d", &attr, (value *[]){&x}, 1, (value *[]){&y, &index}, 2, &plain_step), BRIM_OK);
  assert_int_equal(run(l, "max_pool2d_grad", &attr, (value *[]){&dy, &index}, 2, (value *[]){&dx}, 1, &plain_step),
                   BRIM_OK);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t c = 0; c < 48; c++) {
      double expected[35] = {0};
      for (int64_t p = 0; p < 3; p++)
        for (int64_t q = 0; q < 4; q++) {
          int64_t best = p * 2 * 5 + q;
          for (int64_t r = 0; r < 6; r++) {
            const int64_t at = (p * 2 + r / 2) * 5 + q + r % 2;
            if (((float *)x.at)[place_of(&x.t, n, c, at)] > ((float *)x.at)[place_of(&x.t, n, c, best)]) best = at;
          }
          assert_true(((float *)y.at)[place_of(&y.t, n, c, p * 4 + q)] == ((float *)x.at)[place_of(&x.t, n, c, best)]);
          expected[best] += (double)((float *)dy.at)[place_of(&dy.t, n, c, p * 4 + q)];
        }
      for (int64_t i = 0; i < 35; i++)
        assert_true(fabs(expected[i] - (double)((float *)dx.at)[place_of(&dx.t, n, c, i)]) < 1e-6);
    }
  value *const all[] = {&x, &y, &dy, &index, &dx};
  for (size_t i = 0; i < 5; i++) free(all[i]->at);
}

static void test_overlapping_windows_in_every_order(void **state)
{
  for (size_t k = 0; k < 3; k++) {
    loaded l;
    if (!open_isa(&l, isas[k], 2)) continue;
    for (int i = 0; i < BLOCKS_OF_48; i++)
      for (int j = 0; j < BLOCKS_OF_48; j++) check_pool_grad(&l, blocks_of_48[i], blocks_of_48[j]);
    unload_plugin(&l);
  }
}

static void check_dropout(const loaded *l, const value *x)
{
  const brim_attr attr = {.dropout = {.p = 0.3, .stream = 2}};
  const brim_dropout_key key = brim_dropout_key_make(plain_step.seed, plain_step.step, 2, 0.3);
  const bool image = x->t.shape.rank == 4;
  const int64_t N = x->t.shape.dim[0], C = x->t.shape.dim[1],
                pixels = image ? x->t.shape.dim[2] * x->t.shape.dim[3] : 1;
  value in = *x, y = make(BRIM_DTYPE_F32, x->t.shape.rank, x->t.shape.dim, 1);
  assert_int_equal(run(l, "dropout", &attr, (value *[]){&in}, 1, (value *[]){&y}, 1, &plain_step), BRIM_OK);
  const float scale = (float)(1 / 0.7);
  for (int64_t n = 0; n < N; n++)
    for (int64_t c = 0; c < C; c++)
      for (int64_t i = 0; i < pixels; i++) {
        const int64_t element = image ? i * ((C + 3) / 4 * 4) + c : c,
                      at = image ? place_of(&x->t, n, c, i) : n * C + c;
        const bool kept = brim_dropout_keep(&key, plain_step.first_sample + n, element);
        assert_true(((float *)y.at)[at] == ((float *)x->at)[at] * (kept ? scale : 0));
      }
  free(y.at);
}

static void test_dropout_masks_are_the_documented_ones_in_every_order(void **state)
{
  static const int64_t channels[][2] = {{48, 1}, {48, 8},  {48, 16}, {48, 48}, {5, 1},  {5, 5}, {3, 1},
                                        {1, 1},  {32, 16}, {20, 20}, {64, 64}, {16, 8}, {8, 8}, {4, 4}};
  for (size_t k = 0; k < 3; k++) {
    loaded l;
    if (!open_isa(&l, isas[k], 2)) continue;
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
      for (int64_t w = 1; w <= 9; w += 4) {
        value x = make4(3, channels[i][0], 3, w, channels[i][1]);
        fill_flat(&x, 1);
        check_dropout(&l, &x);
        free(x.at);
      }
    for (int64_t f = 1; f < 100; f += 7) {
      value x = make(BRIM_DTYPE_F32, 2, (int64_t[]){4, f}, 1);
      fill_flat(&x, 1);
      check_dropout(&l, &x);
      free(x.at);
    }
    unload_plugin(&l);
  }
}

static void test_reshape_reads_blocks_in_logical_order(void **state)
{
  for (size_t k = 0; k < 3; k++) {
    loaded l;
    if (!open_isa(&l, isas[k], 2)) continue;
    for (int i = 0; i < BLOCKS_OF_48; i++) {
      value x = make4(2, 48, 5, 7, blocks_of_48[i]), flat = make(BRIM_DTYPE_F32, 2, (int64_t[]){2, 48 * 35}, 1);
      value back = make4(2, 48, 35, 1, 1);
      fill4(&x, 1);
      assert_int_equal(run(&l, "reshape", NULL, (value *[]){&x}, 1, (value *[]){&flat}, 1, &plain_step), BRIM_OK);
      for (int64_t e = 0; e < 2 * 48 * 35; e++) assert_true(((float *)flat.at)[e] == noise((uint64_t)e, 1));
      assert_int_equal(run(&l, "reshape", NULL, (value *[]){&flat}, 1, (value *[]){&back}, 1, &plain_step), BRIM_OK);
      for (int64_t e = 0; e < 2 * 48 * 35; e++)
        assert_true(((float *)back.at)[place_of(&back.t, e / (48 * 35), e / 35 % 48, e % 35)] == noise((uint64_t)e, 1));
      free(x.at);
      free(flat.at);
      free(back.at);
    }
    unload_plugin(&l);
  }
}

/* ---- products ---- */

static void check_linear(const loaded *l, int64_t N, int64_t F, int64_t O)
{
  value x = make(BRIM_DTYPE_F32, 2, (int64_t[]){N, F}, 1), w = make(BRIM_DTYPE_F32, 2, (int64_t[]){O, F}, 1);
  value b = make(BRIM_DTYPE_F32, 1, (int64_t[]){O}, 1), y = make(BRIM_DTYPE_F32, 2, (int64_t[]){N, O}, 1);
  fill_flat(&x, 1);
  fill_flat(&w, 2);
  fill_flat(&b, 3);
  assert_int_equal(run(l, "linear", NULL, (value *[]){&x, &w, &b}, 3, (value *[]){&y}, 1, &plain_step), BRIM_OK);
  double error = 0, norm = 0;
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      double sum = (double)((float *)b.at)[o];
      for (int64_t f = 0; f < F; f++) sum += (double)((float *)x.at)[n * F + f] * (double)((float *)w.at)[o * F + f];
      error += pow(sum - (double)((float *)y.at)[n * O + o], 2);
      norm += sum * sum;
    }
  if (!(sqrt(error / norm) < 2e-6)) fail_msg("[%d,%d] x %d: error %g", (int)N, (int)F, (int)O, sqrt(error / norm));
  value *const all[] = {&x, &w, &b, &y};
  for (size_t i = 0; i < 4; i++) free(all[i]->at);
}

static void test_products_larger_than_any_block(void **state)
{
  for (size_t k = 0; k < 3; k++) {
    loaded l;
    if (!open_isa(&l, isas[k], 3)) continue;
    check_linear(&l, 150, 700, 77);
    check_linear(&l, 1, 1000, 300);
    check_linear(&l, 300, 257, 1);
    check_linear(&l, 7, 256, 33);
    unload_plugin(&l);
  }
}

/* ---- the device ---- */

static void test_a_limit_of_memory_is_kept(void **state)
{
  loaded l;
  open_backend(&l, "{memory_mb: 8, threads: 1}");
  brim_device_info info;
  assert_int_equal(ops_of(&l)->describe(l.self, 0, &info), BRIM_OK);
  assert_int_equal(info.total_bytes, 8 << 20);
  void *first = NULL, *second = NULL;
  assert_int_equal(ops_of(&l)->place(l.self, 0, 5 << 20, &first), BRIM_OK);
  assert_int_equal((uintptr_t)first % 64, 0);
  assert_int_equal(ops_of(&l)->describe(l.self, 0, &info), BRIM_OK);
  assert_int_equal(info.free_bytes, 3 << 20);
  assert_int_equal(ops_of(&l)->place(l.self, 0, (3 << 20) + 1, &second), BRIM_ENOMEM_DEVICE);
  assert_null(second);
  assert_non_null(strstr(brim_error_text(), "memory_mb=8"));
  assert_int_equal(ops_of(&l)->place(l.self, 0, 3 << 20, &second), BRIM_OK);
  ops_of(&l)->unplace(l.self, first, 5 << 20);
  ops_of(&l)->unplace(l.self, second, 3 << 20);
  assert_int_equal(ops_of(&l)->describe(l.self, 0, &info), BRIM_OK);
  assert_int_equal(info.free_bytes, 8 << 20);
  unload_plugin(&l);
}

static void test_more_memory_than_the_host_has_is_refused(void **state)
{
  loaded l;
  open_backend(&l, "{threads: 1}");
  void *base = NULL;
  assert_int_equal(ops_of(&l)->place(l.self, 0, (uint64_t)1 << 50, &base), BRIM_ENOMEM_DEVICE);
  assert_null(base);
  assert_int_equal(ops_of(&l)->place(l.self, 0, UINT64_MAX, &base), BRIM_ENOMEM_DEVICE);
  assert_int_equal(ops_of(&l)->place(l.self, 1, 64, &base), BRIM_ENODEVICE);
  brim_device_info info;
  assert_int_equal(ops_of(&l)->describe(l.self, 7, &info), BRIM_ENODEVICE);
  unload_plugin(&l);
}

static void test_the_device_describes_itself(void **state)
{
  loaded l;
  open_backend(&l, NULL);
  brim_device_info info;
  assert_int_equal(ops_of(&l)->device_count(l.self), 1);
  assert_int_equal(ops_of(&l)->describe(l.self, 0, &info), BRIM_OK);
  assert_true(info.name[0] != '\0' && info.on_host == 1 && info.threads >= 1);
  assert_true(info.total_bytes >= info.free_bytes && info.free_bytes > 0);
  unload_plugin(&l);
}

static void test_a_label_out_of_range_is_an_error(void **state)
{
  loaded l;
  open_backend(&l, NULL);
  value logits = make(BRIM_DTYPE_F32, 2, (int64_t[]){2, 3}, 1), label = make(BRIM_DTYPE_I32, 1, (int64_t[]){2}, 1);
  value loss = make(BRIM_DTYPE_F32, 1, (int64_t[]){2}, 1);
  fill_flat(&logits, 1);
  memcpy(label.at, (int32_t[]){2, 3}, 8);
  assert_int_equal(
      run(&l, "softmax_cross_entropy", NULL, (value *[]){&logits, &label}, 2, (value *[]){&loss}, 1, &plain_step),
      BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), "sample 1"));
  free(logits.at);
  free(label.at);
  free(loss.at);
  unload_plugin(&l);
}

/* ---- the cnn: threads and micro-batches ---- */

enum { EFFECTIVE = 128, STEPS = 3, PIXELS = 28 * 28 };

static void fill_parameters(brim_exec *exec, const brim_program *p)
{
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_parameter *parameter = &p->graph->parameter[i];
    const size_t n = (size_t)brim_shape_count(&parameter->value->shape);
    float *weights = malloc(n * sizeof *weights);
    for (size_t k = 0; k < n; k++) weights[k] = noise(k, 100 + (uint32_t)i) * (float)parameter->init.value;
    assert_int_equal(brim_exec_write(exec, p, parameter->value, weights), BRIM_OK);
    free(weights);
  }
}

static void load_samples(brim_exec *exec, const brim_program *p, int64_t first, int64_t count)
{
  static float values[EFFECTIVE * PIXELS];
  static int32_t labels[EFFECTIVE];
  for (int64_t n = 0; n < count; n++) {
    labels[n] = (int32_t)((first + n) % 10);
    for (int64_t i = 0; i < PIXELS; i++) values[n * PIXELS + i] = noise((uint64_t)((first + n) * PIXELS + i), 9);
  }
  assert_int_equal(brim_exec_load(exec, p, values, labels), BRIM_OK);
}

/* Returns all parameters after STEPS steps, concatenated; the caller frees them. */
static float *train(const char *settings, int64_t batch, size_t *count)
{
  loaded cpu, cnn;
  open_backend(&cpu, settings);
  assert_true(load_plugin(&cnn, "model", "cnn", NULL));
  const brim_plan_request request = {.graph = {.model = cnn.plugin->ops,
                                               .model_self = cnn.self,
                                               .loss.op = "softmax_cross_entropy",
                                               .sample = {3, {1, 28, 28}},
                                               .classes = 10,
                                               .real = BRIM_DTYPE_F32},
                                     .backend = cpu.plugin->ops,
                                     .backend_self = cpu.self,
                                     .grain = 16,
                                     .update = {.op = "adamw", .state_count = 2},
                                     .shape = {{BRIM_PROGRAM_TRAIN, batch}},
                                     .shape_count = 1};
  brim_plan *plan = NULL;
  brim_exec *exec = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_OK);
  assert_int_equal(brim_exec_open(plan, 0, &exec), BRIM_OK);
  const brim_program *program = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  fill_parameters(exec, program);
  brim_step step = {.seed = 5,
                    .loss_scale = 1.0 / EFFECTIVE,
                    .lr = 1e-3,
                    .weight_decay = 0.01,
                    .beta1 = 0.9,
                    .beta2 = 0.999,
                    .eps = 1e-8};
  for (int i = 0; i < STEPS; i++) {
    step.step = (uint64_t)i;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    assert_int_equal(brim_exec_zero_gradients(exec), BRIM_OK);
    for (step.first_sample = 0; step.first_sample < EFFECTIVE; step.first_sample += batch) {
      load_samples(exec, program, step.first_sample, batch);
      assert_int_equal(brim_exec_run(exec, program, &step, NULL), BRIM_OK);
    }
    assert_int_equal(brim_exec_run(exec, &plan->program[plan->program_count - 1], &step, NULL), BRIM_OK);
  }
  *count = (size_t)(plan->gradient_bytes / sizeof(float));
  float *out = calloc(*count, sizeof *out);
  size_t at = 0;
  for (size_t i = 0; i < program->graph->parameter_count; i++) {
    const brim_tensor *t = program->graph->parameter[i].value;
    assert_int_equal(brim_exec_read(exec, program, t, out + at), BRIM_OK);
    at += (size_t)brim_shape_count(&t->shape);
  }
  brim_exec_close(exec);
  brim_plan_free(plan);
  unload_plugin(&cnn);
  unload_plugin(&cpu);
  return out;
}

static void test_threads_and_micro_batches_do_not_change_a_bit(void **state)
{
  static const struct {
    const char *settings;
    int64_t batch;
  } runs[] = {{"{threads: 1}", 64}, {"{threads: 2}", 32}, {"{threads: 3}", 128}, {"{threads: 7}", 16}};
  size_t count = 0, same = 0;
  float *first = train("{threads: 2}", 128, &count);
  for (size_t i = 0; i < count; i++) assert_true(isfinite(first[i]));
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    float *other = train(runs[i].settings, runs[i].batch, &same);
    assert_int_equal(same, count);
    if (memcmp(first, other, count * sizeof *first) != 0)
      fail_msg("micro-batch %d with %s differs", (int)runs[i].batch, runs[i].settings);
    free(other);
  }
  free(first);
}

static void test_instruction_sets_agree_within_rounding(void **state)
{
  size_t count = 0;
  float *first = train("{threads: 2}", 128, &count), *other = train("{threads: 2, isa: v2}", 128, &count);
  double error = 0, norm = 0;
  for (size_t i = 0; i < count; i++) {
    error += pow((double)first[i] - (double)other[i], 2);
    norm += pow((double)first[i], 2);
  }
  /* In AdamW's first steps a tiny gradient causes a whole step, so rounding decides. */
  assert_true(sqrt(error / norm) < 1e-3);
  free(first);
  free(other);
}

int main(void)
{
  /* oneDNN accepts a limit of its instruction set only before its first use: these two tests, without a limit, come
   * first. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_and_micro_batches_do_not_change_a_bit),
      cmocka_unit_test(test_instruction_sets_agree_within_rounding),
      cmocka_unit_test(test_inputs_of_different_layouts_are_converted),
      cmocka_unit_test(test_overlapping_windows_in_every_order),
      cmocka_unit_test(test_dropout_masks_are_the_documented_ones_in_every_order),
      cmocka_unit_test(test_reshape_reads_blocks_in_logical_order),
      cmocka_unit_test(test_products_larger_than_any_block),
      cmocka_unit_test(test_a_limit_of_memory_is_kept),
      cmocka_unit_test(test_more_memory_than_the_host_has_is_refused),
      cmocka_unit_test(test_the_device_describes_itself),
      cmocka_unit_test(test_a_label_out_of_range_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
