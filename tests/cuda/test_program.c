/* Tests programs of the cuda backend, run whole on the emulated device: the same bits as node by node, however often
 * and with every step; updates of many parameters in few launches; and a refused proof changes nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/machine.h"

/* ---- updates ---- */

/* Runs three equal graphs: one as a whole, one node by node through debug_launches, and one by each node's run
 * function. */
static void check_graphs(brim_graph *const graph[3], uint64_t kernels)
{
  machine whole, debugged, single;
  open_machine(&whole, graph[0], NULL, 0);
  open_machine(&debugged, graph[1], "{debug_launches: true}", 0);
  open_machine(&single, graph[2], NULL, 0);
  assert_int_equal(count_launches(&whole), kernels);
  for (uint64_t step = 0; step < 3; step++) {
    const uint64_t before = kernels_run();
    run_program(&whole, make_step(step), NULL);
    OK(whole.ops->synchronize(whole.self));
    assert_int_equal(kernels_run() - before, kernels);
    run_program(&debugged, make_step(step), NULL);
    run_nodes(&single, make_step(step));
    check_same(&whole, &single);
    check_same(&debugged, &single);
  }
  close_machine(&whole);
  close_machine(&debugged);
  close_machine(&single);
}

static void check_update(const char *op, int64_t parameters, double max_norm, double ema_decay, uint64_t kernels)
{
  brim_graph *graph[3];
  for (int i = 0; i < 3; i++) graph[i] = update_graph(op, parameters, max_norm, ema_decay);
  check_graphs(graph, kernels);
}

/* The program launches its first kernel, and one kernel each for updates, averages and buffers. */
static void test_an_update_of_many_parameters_is_few_launches_of_the_same_bits(void **state)
{
  check_update("adamw", 20, 0, 0, 3);
  check_update("adam", 20, 0, 0.9, 4);
  check_update("yogi", 20, 0, 0, 3);
  check_update("adagrad", 20, 0, 0, 3);
  check_update("sgd", 20, 0, 0, 3);
  check_update("lion", 20, 0, 0, 3);
  check_update("adamw", 1, 0, 0, 2);
}

/* Of 20 tensors 15 are trained, and buffers lie between them. adafactor adds up rows and columns between its
 * launches. */
static void test_updates_of_other_states_are_launches_of_their_own(void **state)
{
  check_update("adamw8bit", 20, 0, 0, 1 + 15 + 5);
  check_update("adafactor", 20, 0.5, 0, 1 + 3 + 15 * 7 + 5);
}

/* Clipping adds two launches for the norm and one for the factor. */
static void test_the_norm_of_all_gradients_is_two_launches_of_the_same_bits(void **state)
{
  check_update("adamw", 20, 0.5, 0, 6);
  check_update("sgd", 20, 0.5, 0.75, 7);
}

/* The averages of 450 trained parameters and 150 buffers need two tables. */
static void test_work_beyond_one_table_continues_in_the_next(void **state)
{
  check_update("sgd", 600, 0, 0.5, 5);
}

/* Updates the same parameter twice, with its average in between. If both updates were one launch, the second would not
 * see the first. */
static brim_graph *twice_graph(void)
{
  const brim_shape shape = {1, {5000}};
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 1, true);
  brim_tensor *p = brim_graph_parameter(g, "p", &shape, (brim_init){BRIM_INIT_UNIFORM, 1});
  brim_tensor *q = brim_graph_parameter(g, "q", &shape, (brim_init){BRIM_INIT_UNIFORM, 1});
  brim_tensor *velocity = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F32, &shape, "velocity");
  brim_tensor *other = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F32, &shape, "other");
  brim_tensor *average = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F32, &shape, "average");
  const brim_attr plain = {0}, half = {.ema = {0.5}};
  brim_tensor *const p_in[] = {p, g->parameter[0].gradient, velocity}, *p_out[] = {p, velocity};
  brim_tensor *const q_in[] = {q, g->parameter[1].gradient, other}, *q_out[] = {q, other};
  brim_tensor *const ema_in[] = {p, average};
  brim_graph_node_into(g, "sgd", "p", p_in, 3, p_out, 2, &plain);
  brim_graph_node_into(g, "ema", "p", ema_in, 2, &average, 1, &half);
  brim_graph_node_into(g, "sgd", "p", p_in, 3, p_out, 2, &plain);
  brim_graph_node_into(g, "sgd", "q", q_in, 3, q_out, 2, &plain);
  brim_graph_node_into(g, "ema", "p", ema_in, 2, &average, 1, &half);
  return g;
}

static void test_updates_that_depend_on_each_other_keep_their_order(void **state)
{
  machine whole, single;
  open_machine(&whole, twice_graph(), NULL, 0);
  open_machine(&single, twice_graph(), NULL, 0);
  const uint64_t before = kernels_run();
  run_program(&whole, make_step(3), NULL);
  OK(whole.ops->synchronize(whole.self));
  assert_int_equal(kernels_run() - before, 1 + 4); /* p and q together, ema, p, ema */
  run_nodes(&single, make_step(3));
  check_same(&whole, &single);
  close_machine(&whole);
  close_machine(&single);
}

/* ---- federations ---- */

/* Every fourth parameter is served in place. */
static brim_graph *federate_graph(int64_t parameters, bool with_distance)
{
  static const int64_t size[] = {1, 3, 4, 40, 4096, 257, 4097, 20001, 5};
  static const char *const ops[] = {"fold", "serve", "steer", "adopt"};
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 1, true);
  brim_tensor *distance = NULL;
  char name[32];
  for (int64_t i = 0; i < parameters; i++) {
    const brim_shape shape = {i % 9 ? 1 : 0, {parameters > 100 ? 1 + i % 3 : size[i % 9]}};
    snprintf(name, sizeof name, "p%lld", (long long)i);
    brim_tensor *w = brim_graph_parameter(g, name, &shape, (brim_init){BRIM_INIT_UNIFORM, 1});
    brim_tensor *global = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F32, &shape, "global");
    brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &shape, "sum");
    if (!with_distance) continue;
    brim_tensor *const in[] = {w, global, distance};
    distance = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &(brim_shape){1, {2}}, "distance");
    brim_graph_node_into(g, "distance", name, in, i ? 3 : 2, &distance, 1, NULL);
  }
  for (size_t i = 0; i < 4 * g->parameter_count; i++) {
    const size_t k = i % g->parameter_count, op = i / g->parameter_count;
    brim_tensor *w = g->parameter[k].value, *gradient = g->parameter[k].gradient;
    brim_tensor *global = g->tensor[gradient->id + 1], *sum = g->tensor[gradient->id + 2];
    brim_tensor *const in[4][3] = {{w, global, sum}, {sum, global}, {w, global, gradient}, {global}};
    brim_tensor *const out[4] = {sum, k % 4 == 3 ? global : gradient, gradient, w};
    const uint32_t in_count[4] = {3, k % 4 == 3 ? 2 : 1, 3, 1};
    brim_graph_node_into(g, ops[op], w->name, in[op], in_count[op], &out[op], 1, NULL);
  }
  return g;
}

static void check_federation(int64_t parameters, uint64_t kernels)
{
  brim_graph *graph[3];
  for (int i = 0; i < 3; i++) graph[i] = federate_graph(parameters, true);
  check_graphs(graph, kernels);
}

/* The program launches its first kernel, two kernels for the distance, and fold, serve, steer and adopt once for each
 * table of parameters. */
static void test_a_round_of_many_parameters_is_few_launches_of_the_same_bits(void **state)
{
  check_federation(20, 1 + 2 + 4);
  check_federation(1, 1 + 2 + 4);
  check_federation(600, 1 + 2 * 2 + 2 * 4);
}

/* ---- order ---- */

static void check_orders(const char *op, double max_norm, double ema_decay)
{
  static const char *const seed[] = {"1", "2", "3"};
  machine ascending, shuffled;
  for (size_t s = 0; s < sizeof seed / sizeof *seed; s++) {
    open_machine(&ascending, update_graph(op, 20, max_norm, ema_decay), NULL, 0);
    open_machine(&shuffled, update_graph(op, 20, max_norm, ema_decay), NULL, 0);
    for (uint64_t step = 0; step < 3; step++) {
      run_program(&ascending, make_step(step), NULL);
      OK(ascending.ops->synchronize(ascending.self));
      setenv("EMULATED_ORDER", seed[s], 1);
      run_program(&shuffled, make_step(step), NULL);
      OK(shuffled.ops->synchronize(shuffled.self));
      unsetenv("EMULATED_ORDER");
    }
    print_message("%s with EMULATED_ORDER=%s\n", op, seed[s]);
    check_same(&ascending, &shuffled);
    close_machine(&ascending);
    close_machine(&shuffled);
  }
}

static void test_programs_leave_the_same_bits_in_any_order_of_blocks_and_threads(void **state)
{
  check_orders("adamw", 0.5, 0.75);
  check_orders("adafactor", 0.5, 0);
  check_orders("adamw8bit", 0, 0);
}

/* ---- alignment ---- */

/* Updates a parameter whose values begin 4 bytes late, with vectors of 16 bytes. */
static void update_a_misaligned_parameter(void)
{
  machine m;
  open_machine(&m, update_graph("sgd", 5, 0, 0), NULL, 0);
  size_t i = 0;
  while (m.launch[i].node->in[0]->bytes < 4096) i++;
  void *const late = (char *)m.launch[i].in[0] + 4;
  memcpy((void *)m.launch[i].in, &late, sizeof late);
  memcpy((void *)m.launch[i].out, &late, sizeof late);
  run_nodes(&m, make_step(0));
}

static void test_a_vector_that_is_not_aligned_ends_the_program(void **state)
{
  char said[1024];
  int pipes[2], status;
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    update_a_misaligned_parameter();
    _exit(0);
  }
  close(pipes[1]);
  const ssize_t length = read(pipes[0], said, sizeof said - 1);
  assert_true(length >= 0);
  said[length] = '\0';
  close(pipes[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
  if (!strstr(said, "misaligned address")) fail_msg("said: %s", said);
}

/* ---- proofs ---- */

static void check_parameters(machine *m, bool changed)
{
  for (size_t i = 0; i < m->g->parameter_count; i++) {
    const brim_tensor *t = m->g->parameter[i].value;
    float *now = read_tensor(m, t);
    bool same = true;
    for (uint64_t k = 0; k < t->bytes / 4; k++) same = same && now[k] == value_of(t, k);
    if (same == changed) fail_msg("'%s' %s", t->name, changed ? "was not changed" : "was changed");
    free(now);
  }
}

static void check_failed_proof_of(brim_graph *const graph[2])
{
  machine m, untouched;
  const double bad[] = {INFINITY, -INFINITY, NAN}, good = 1;
  for (int i = 0; i < 2; i++)
    brim_graph_tensor(graph[i], BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {1}}, "proof");
  open_machine(&m, graph[0], NULL, 0);
  open_machine(&untouched, graph[1], NULL, 0);
  const brim_tensor *proof = m.g->tensor[m.g->tensor_count - 1];
  const double *on_device = m.memory[proof->id];
  for (int i = 0; i < 3; i++) {
    write_tensor(&m, proof, &bad[i]);
    run_program(&m, make_step(1), on_device);
    /* The first program has read the bad proof before this write, so the next programs have no effect either. */
    write_tensor(&m, proof, &good);
    run_program(&m, make_step(2), on_device);
    run_program(&m, make_step(3), on_device);
    OK(m.ops->upload(m.self, m.memory[proof->id], &(double){0}, sizeof(double)));
    check_same(&m, &untouched); /* the comparison reads without synchronizing */
    OK(m.ops->synchronize(m.self));
    check_parameters(&m, false);
  }
  write_tensor(&m, proof, &bad[0]);
  run_program(&m, make_step(1), on_device);
  OK(m.ops->synchronize(m.self));
  write_tensor(&m, proof, &good);
  run_program(&m, make_step(1), on_device);
  check_parameters(&m, true);
  close_machine(&m);
  close_machine(&untouched);
}

static void check_failed_proof(const char *op)
{
  brim_graph *const graph[2] = {update_graph(op, 20, 0, 0.5), update_graph(op, 20, 0, 0.5)};
  check_failed_proof_of(graph);
}

static void test_a_failed_proof_keeps_everything_until_it_was_waited_for(void **state)
{
  check_failed_proof("adamw");
  check_failed_proof("lion");
  check_failed_proof("adafactor");
  check_failed_proof("adamw8bit");
  brim_graph *const round[2] = {federate_graph(20, false), federate_graph(20, false)};
  check_failed_proof_of(round);
}

static void test_a_program_without_a_proof_runs_after_a_failed_one(void **state)
{
  machine m;
  const double bad = NAN;
  brim_graph *g = update_graph("sgd", 5, 0, 0);
  const brim_tensor *proof = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {1}}, "proof");
  open_machine(&m, g, NULL, 0);
  write_tensor(&m, proof, &bad);
  run_program(&m, make_step(1), m.memory[proof->id]);
  check_parameters(&m, false);
  run_program(&m, make_step(1), NULL);
  check_parameters(&m, true);
  close_machine(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_update_of_many_parameters_is_few_launches_of_the_same_bits),
      cmocka_unit_test(test_updates_of_other_states_are_launches_of_their_own),
      cmocka_unit_test(test_the_norm_of_all_gradients_is_two_launches_of_the_same_bits),
      cmocka_unit_test(test_work_beyond_one_table_continues_in_the_next),
      cmocka_unit_test(test_updates_that_depend_on_each_other_keep_their_order),
      cmocka_unit_test(test_a_round_of_many_parameters_is_few_launches_of_the_same_bits),
      cmocka_unit_test(test_programs_leave_the_same_bits_in_any_order_of_blocks_and_threads),
      cmocka_unit_test(test_a_vector_that_is_not_aligned_ends_the_program),
      cmocka_unit_test(test_a_failed_proof_keeps_everything_until_it_was_waited_for),
      cmocka_unit_test(test_a_program_without_a_proof_runs_after_a_failed_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
