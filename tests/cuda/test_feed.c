/* Tests inputs, results and errors of a device that works while the host continues. The emulated device's streams run
 * their work as late as their order and events allow, so work with a missing wait reads the wrong input. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/machine.h"

/* ---- inputs and results ---- */

enum { INPUT = 1000 };

/* The program computes the squared norm of its input, so a result shows which input it came from. */
static brim_graph *norm_graph(int64_t count)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 1, false);
  brim_tensor *x = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F32, &(brim_shape){1, {count}}, "x");
  brim_tensor *label = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &(brim_shape){1, {3}}, "label");
  brim_tensor *sum = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &(brim_shape){1, {1}}, "sum");
  g->input = x;
  g->label = label;
  brim_graph_node_into(g, "squared_norm", "norm", &x, 1, &sum, 1, NULL);
  return g;
}

static double feed_number(machine *m, int number)
{
  float x[INPUT];
  int32_t label[3] = {number, -number, 7};
  double sum = 0;
  for (int i = 0; i < INPUT; i++) x[i] = (float)((number * 31 + i) % 17);
  for (int i = 0; i < INPUT; i++) sum += (double)x[i] * (double)x[i];
  const brim_copy copy[] = {{m->memory[m->g->input->id], x, sizeof x},
                            {m->memory[m->g->label->id], label, sizeof label}};
  OK(m->ops->feed(m->self, copy, 2));
  memset(x, 0xFF, sizeof x); /* the buffer is free again */
  memset(label, 0xFF, sizeof label);
  return sum;
}

typedef struct results {
  double sum;
  int32_t label[3];
} results;

static void start_fetch(machine *m, results *to)
{
  const brim_tensor *sum = m->g->node[0]->out[0];
  const brim_copy copy[] = {{&to->sum, m->memory[sum->id], sizeof to->sum},
                            {to->label, m->memory[m->g->label->id], sizeof to->label}};
  OK(m->ops->fetch(m->self, copy, 2));
}

static void check_fetched(machine *m, const results *got, double sum, int number)
{
  OK(m->ops->collect(m->self));
  assert_true(got->sum == sum);
  assert_int_equal(got->label[0], number);
  assert_int_equal(got->label[1], -number);
}

/* With two stages the third input must wait for the first to be used, and so on. */
static void test_no_input_overtakes_and_results_come_in_order(void **state)
{
  machine m;
  results got[2];
  double sum[2] = {0};
  open_machine(&m, norm_graph(INPUT), NULL, sizeof(float) * INPUT + 1024);
  for (int i = 0; i < 9; i++) {
    sum[i % 2] = feed_number(&m, i);
    run_program(&m, make_step((uint64_t)i), NULL);
    memset(&got[i % 2], 0, sizeof got[0]);
    start_fetch(&m, &got[i % 2]);
    assert_int_equal(got[i % 2].label[2], 0); /* nothing is written before collect */
    if (i > 0) check_fetched(&m, &got[(i - 1) % 2], sum[(i - 1) % 2], i - 1);
  }
  check_fetched(&m, &got[0], sum[0], 8);
  close_machine(&m);
}

/* The first two results are pending while the stages are reused again and again. */
static void test_inputs_without_waits_are_used_by_their_own_program(void **state)
{
  machine m;
  results got[2];
  double sum[6];
  open_machine(&m, norm_graph(INPUT), NULL, sizeof(float) * INPUT + 1024);
  for (int i = 0; i < 6; i++) {
    sum[i] = feed_number(&m, i);
    run_program(&m, make_step(0), NULL);
    if (i < 2) start_fetch(&m, &got[i]);
  }
  check_fetched(&m, &got[0], sum[0], 0);
  check_fetched(&m, &got[1], sum[1], 1);
  start_fetch(&m, &got[0]);
  check_fetched(&m, &got[0], sum[5], 5);
  close_machine(&m);
}

static void test_no_more_is_fetched_than_fits(void **state)
{
  machine m;
  results got[3];
  char much[BRIM_FETCH_BYTES + 8];
  open_machine(&m, norm_graph(INPUT), NULL, sizeof(float) * INPUT + 1024);
  assert_int_equal(m.ops->collect(m.self), BRIM_EINTERNAL);
  const brim_copy copy = {much, m.base, sizeof much};
  assert_int_equal(m.ops->fetch(m.self, &copy, 1), BRIM_EINTERNAL);
  const double sum = feed_number(&m, 1);
  run_program(&m, make_step(0), NULL);
  start_fetch(&m, &got[0]);
  start_fetch(&m, &got[1]);
  assert_int_equal(m.ops->fetch(m.self, &(brim_copy){&got[2], m.memory[m.g->label->id], 4}, 1), BRIM_EINTERNAL);
  check_fetched(&m, &got[0], sum, 1);
  check_fetched(&m, &got[1], sum, 1);
  close_machine(&m);
}

/* More than 4096 pieces of 16384 elements: each block takes several. */
static void test_a_norm_of_many_pieces_has_every_element_once(void **state)
{
  const int64_t count = (int64_t)4096 * 16384 + 16384 + 7;
  machine m;
  double sum = 0, got = 0;
  open_machine(&m, norm_graph(count), NULL, 0);
  const brim_tensor *x = m.g->input, *result = m.g->node[0]->out[0];
  for (int64_t i = 0; i < count; i++) sum += (double)value_of(x, (uint64_t)i) * (double)value_of(x, (uint64_t)i);
  run_program(&m, make_step(0), NULL);
  OK(m.ops->download(m.self, &got, m.memory[result->id], sizeof got));
  if (!(fabs(got - sum) < 1e-10 * sum)) fail_msg("%.17g instead of %.17g", got, sum);
  close_machine(&m);
}

/* ---- errors ---- */

static brim_graph *words_graph(void)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 3, false);
  g->label = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &(brim_shape){2, {3, 6}}, "index");
  brim_embedding(g, "words", g->label, 4, 5);
  return g;
}

static void test_an_index_out_of_range_comes_out_where_results_are_waited_for(void **state)
{
  machine m;
  const char *expected = "embedding 'words': index 9 in sample 2 of the micro-batch is not in [0, 4)";
  int32_t index[18] = {0}, got = -1;
  open_machine(&m, words_graph(), NULL, sizeof index);
  const brim_copy in = {m.memory[m.g->label->id], index, sizeof index}, out = {&got, m.memory[m.g->label->id], 4};
  index[17] = 9;
  OK(m.ops->feed(m.self, &in, 1));
  run_program(&m, make_step(0), NULL); /* starting it succeeds */
  OK(m.ops->fetch(m.self, &out, 1));
  assert_int_equal(m.ops->collect(m.self), BRIM_EINVAL);
  assert_string_equal(brim_error_text(), expected);
  assert_int_equal(m.ops->synchronize(m.self), BRIM_EINVAL);
  assert_string_equal(brim_error_text(), expected);
  OK(m.ops->synchronize(m.self)); /* an earlier call reported the error */
  index[17] = 3;
  OK(m.ops->feed(m.self, &in, 1));
  run_program(&m, make_step(0), NULL);
  OK(m.ops->fetch(m.self, &out, 1));
  OK(m.ops->collect(m.self));
  assert_int_equal(got, 0);
  close_machine(&m);
}

/* On a real device no call can succeed after such an error; the emulated one works again once the variable is unset. */
static void test_an_error_of_a_kernel_names_the_operation_if_asked_to(void **state)
{
  machine m;
  open_machine(&m, update_graph("adamw", 3, 0, 0), "{debug_launches: true}", 0);
  setenv("EMULATED_ILLEGAL", "2", 1); /* the program's first kernel, p0, and this one */
  assert_int_equal(try_program(&m, make_step(0), NULL), BRIM_EDEVICE);
  assert_string_equal(brim_error_text(),
                      "adamw 'p1': an illegal memory access was encountered (cudaErrorIllegalAddress)\n"
                      "this process can no longer use the device; the last checkpoint is intact");
  unsetenv("EMULATED_ILLEGAL");
  run_program(&m, make_step(0), NULL);
  close_machine(&m);
}

static void test_an_error_of_a_kernel_comes_out_where_it_is_waited_for(void **state)
{
  machine m;
  open_machine(&m, update_graph("adamw", 3, 0, 0), NULL, 0);
  setenv("EMULATED_ILLEGAL", "1", 1);
  run_program(&m, make_step(0), NULL);
  assert_int_equal(m.ops->synchronize(m.self), BRIM_EDEVICE);
  assert_string_equal(brim_error_text(),
                      "waiting for the device: an illegal memory access was encountered (cudaErrorIllegalAddress)\n"
                      "this process can no longer use the device; the last checkpoint is intact\n"
                      "backend.debug_launches=true names the operation that failed");
  unsetenv("EMULATED_ILLEGAL");
  run_program(&m, make_step(0), NULL);
  OK(m.ops->synchronize(m.self));
  close_machine(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_input_overtakes_and_results_come_in_order),
      cmocka_unit_test(test_inputs_without_waits_are_used_by_their_own_program),
      cmocka_unit_test(test_no_more_is_fetched_than_fits),
      cmocka_unit_test(test_a_norm_of_many_pieces_has_every_element_once),
      cmocka_unit_test(test_an_index_out_of_range_comes_out_where_results_are_waited_for),
      cmocka_unit_test(test_an_error_of_a_kernel_names_the_operation_if_asked_to),
      cmocka_unit_test(test_an_error_of_a_kernel_comes_out_where_it_is_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
