/* Tests the device profile: its file, and how times for other shapes are predicted from the measured ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/predict.h"
#include "graph/signature.h"
#include "scratch.h"

static const brim_profile_subject subject = {
    .backend = "cpu", .device = "a \"made up\" device", .threads = 2, .build = 7};

static brim_profile *open_at(const char *path)
{
  brim_profile *p = NULL;
  if (brim_profile_open(path, &subject, &p) != BRIM_OK) fail_msg("%s", brim_error_text());
  return p;
}

static void expect(brim_profile *p, const char *what, int64_t n, double seconds)
{
  const brim_profile_entry *e = brim_profile_find(p, what, n);
  assert_non_null(e);
  assert_true(e->seconds > seconds * 0.99999 && e->seconds < seconds * 1.00001);
}

static void write_file(const char *path, const char *text)
{
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

/* ---- the file ---- */

static void saved_data_reads_back(void **state)
{
  char path[4096];
  snprintf(path, sizeof path, "%s", scratch("new/folder/profile.jsonl"));
  unlink(path);
  brim_profile *p = open_at(path);
  assert_null(brim_profile_find(p, "relu f32[N]", 64));
  brim_profile_add(p, "relu f32[N]", 64, 1.5e-6, 2e-6);
  brim_profile_add(p, "relu f32[N]", 128, 3e-6, 4e-6);
  assert_int_equal(brim_profile_save(p), BRIM_OK);
  brim_profile_close(p);
  p = open_at(path);
  expect(p, "relu f32[N]", 64, 1.5e-6);
  expect(p, "relu f32[N]", 128, 3e-6);
  assert_null(brim_profile_find(p, "relu f32[N]", 32));
  brim_profile_close(p);
}

/* Both processes read the file before either of them writes it. */
static void two_processes_keep_each_others_times(void **state)
{
  char path[4096];
  snprintf(path, sizeof path, "%s", scratch("both.jsonl"));
  unlink(path);
  brim_profile *a = open_at(path), *b = open_at(path);
  brim_profile_add(a, "a", 1, 1e-3, 0);
  brim_profile_add(b, "b", 1, 2e-3, 0);
  assert_int_equal(brim_profile_save(a), BRIM_OK);
  assert_int_equal(brim_profile_save(b), BRIM_OK);
  brim_profile_close(a);
  brim_profile_close(b);
  a = open_at(path);
  expect(a, "a", 1, 1e-3);
  expect(a, "b", 1, 2e-3);
  brim_profile_close(a);
}

static void an_invalid_file_is_refused_with_its_line(void **state)
{
  static const struct {
    const char *text, *error;
    brim_status status;
  } cases[] = {
      {"hello\n", ":1: ", BRIM_EINVAL},
      {"{}\n", ":1: not a brim device profile", BRIM_EINVAL},
      {"{\"brim_profile\":9}\n", " has version 9; this brim reads version 1", BRIM_ECONFIG},
      {"{\"brim_profile\":1,\"device\":\"another\"}\n", " is for cpu on another, 2 threads, not for ", BRIM_ECONFIG},
      {"{\"brim_profile\":1,\"threads\":3}\n", ", 3 threads, not for ", BRIM_ECONFIG},
      {"{\"brim_profile\":1}\n{\"what\":\"a\",\"n\":1}\n", ":2: expected a time: ", BRIM_EINVAL},
      {"{\"brim_profile\":1}\n{\"what\":\"a\",\"n\":1,\"seconds\":-1}\n", ":2: expected a time: ", BRIM_EINVAL},
      {"{\"brim_profile\":1}\n\n{\"what\":\"a\"", ":3: ", BRIM_EINVAL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_profile *p = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", scratch("wrong.jsonl"));
    write_file(path, cases[i].text);
    assert_int_equal(brim_profile_open(path, &subject, &p), cases[i].status);
    assert_null(p);
    if (!strstr(brim_error_text(), cases[i].error)) fail_msg("%s", brim_error_text());
  }
}

/* A hand-made file need not name its device. */
static void a_file_need_not_name_its_device(void **state)
{
  char path[4096];
  snprintf(path, sizeof path, "%s", scratch("short.jsonl"));
  write_file(path, "{\"brim_profile\":1}\n{\"what\":\"a\",\"n\":1,\"seconds\":0.5}\n");
  brim_profile *p = open_at(path);
  expect(p, "a", 1, 0.5);
  brim_profile_close(p);
}

static void a_runs_copy_has_the_used_times_and_equal_times_give_equal_bytes(void **state)
{
  brim_text first = {0}, second = {0};
  brim_profile *a = open_at(NULL), *b = open_at(NULL);
  brim_profile_print_used(a, &first);
  assert_int_equal(first.length, 0);
  brim_profile_add(a, "x", 1, 1e-3, 2e-3);
  brim_profile_add(a, "unused", 1, 1e-3, 2e-3);
  brim_profile_add(a, "a", 2, 1e-3, 0);
  brim_profile_add(b, "a", 2, 1e-3, 0);
  brim_profile_add(b, "x", 1, 1e-3, 2e-3);
  for (int i = 0; i < 2; i++) {
    assert_non_null(brim_profile_find(i ? b : a, "x", 1));
    assert_non_null(brim_profile_find(i ? b : a, "a", 2));
  }
  brim_profile_print_used(a, &first);
  brim_profile_print_used(b, &second);
  assert_string_equal(brim_text_str(&first), brim_text_str(&second));
  assert_null(strstr(brim_text_str(&first), "unused"));
  brim_text_release(&first);
  brim_text_release(&second);
  brim_profile_close(a);
  brim_profile_close(b);
}

/* ---- predictions ---- */

enum kind { EXACT, DERIVED, GUESSED };

static double predict(brim_profile *p, const char *what, int64_t n, double rated, enum kind kind)
{
  brim_prediction out = {0};
  brim_predict_other(p, what, n, rated, 1, &out);
  assert_true((out.derived_seconds > 0) == (kind == DERIVED));
  assert_true((out.guessed_seconds > 0) == (kind == GUESSED));
  return out.seconds;
}

static void assert_near(double a, double b)
{
  if (!(a > 0.999999 * b && a < 1.000001 * b)) fail_msg("%g is not %g", a, b);
}

static void other_micro_batches_are_interpolated_and_extrapolated(void **state)
{
  brim_profile *p = open_at(NULL);
  brim_profile_add(p, "conv2d N", 16, 1e-3, 0);
  brim_profile_add(p, "conv2d N", 64, 3e-3, 0);
  assert_near(predict(p, "conv2d N", 64, 1, EXACT), 3e-3);
  assert_near(predict(p, "conv2d N", 40, 1, DERIVED), 2e-3);
  assert_near(predict(p, "conv2d N", 128, 1, DERIVED), 6e-3);
  assert_near(predict(p, "conv2d N", 8, 1, DERIVED), 0.5e-3);
  brim_profile_close(p);
}

static void untimed_shapes_are_guessed_from_their_operation_or_from_all(void **state)
{
  brim_profile *p = open_at(NULL);
  assert_near(predict(p, "conv2d N", 16, 1e-3, GUESSED), 1e-3); /* without any measurement, the common rates decide */
  brim_profile_add(p, "conv2d f32[N,1]", 16, 2e-3, 1e-3);
  brim_profile_add(p, "conv2d f32[N,2]", 16, 4e-3, 1e-3);
  brim_profile_add(p, "conv2d f32[N,3]", 16, 8e-3, 1e-3);
  brim_profile_add(p, "conv2d_grad_input f32[N]", 16, 1, 1e-3); /* another operation */
  assert_near(predict(p, "conv2d f32[N,4]", 16, 1e-3, GUESSED), 4e-3);
  assert_near(predict(p, "relu f32[N]", 16, 1e-3, GUESSED), 8e-3);
  brim_profile_close(p);
}

/* ---- programs ---- */

/* x [N,8] -> relu -> relu */
static brim_graph *make_graph(int64_t batch)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, batch, true);
  const brim_shape shape = {2, {batch, 8}};
  brim_tensor *x = g->input = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F32, &shape, "x");
  x = brim_graph_apply(g, "relu", "first", &x, 1, NULL);
  assert_non_null(brim_graph_apply(g, "relu", "second", &x, 1, NULL));
  return g;
}

static void a_signature_is_the_same_in_other_layers_and_micro_batches(void **state)
{
  brim_text a = {0}, b = {0}, c = {0};
  brim_program small = {.graph = make_graph(16), .info = {16, 16, 1}},
               large = {.graph = make_graph(48), .info = {48, 16, 1}};
  brim_signature_print(&small, small.graph->node[0], &a);
  brim_signature_print(&large, large.graph->node[1], &b);
  assert_string_equal(brim_text_str(&a), "relu f32[N,8] > f32[N,8] 0 g16 t");
  assert_string_equal(brim_text_str(&b), brim_text_str(&a));
  small.info.grain = 1; /* a backend may choose other kernels then */
  brim_signature_print(&small, small.graph->node[0], &c);
  assert_string_not_equal(brim_text_str(&c), brim_text_str(&a));
  brim_text_release(&a);
  brim_text_release(&b);
  brim_text_release(&c);
  brim_graph_free(small.graph);
  brim_graph_free(large.graph);
}

static double predict_program(brim_profile *p, const brim_program *program, bool whole)
{
  const brim_rates rates = {1e9, 1e9, 1e-6, whole};
  brim_prediction out = {0};
  brim_predict_program(p, &rates, program, 1, &out);
  return out.seconds;
}

/* The time of a whole program was measured for one micro-batch, and is scaled to others. */
static void programs_run_as_a_whole_take_a_fraction_of_the_sum(void **state)
{
  brim_text name = {0};
  brim_profile *p = open_at(NULL);
  brim_program small = {.graph = make_graph(16), .info = {16, 16, 1}},
               large = {.graph = make_graph(48), .info = {48, 16, 1}};
  brim_profile_add(p, "relu f32[N,8] > f32[N,8] 0 g16 t", 16, 1e-3, 1e-3);
  assert_near(predict_program(p, &small, true), 2e-3);
  assert_near(predict_program(p, &large, true), 6e-3);
  brim_predict_whole_name(&small, &name);
  brim_profile_add(p, brim_text_str(&name), 16, 0.5e-3, 2e-3);
  assert_near(predict_program(p, &small, true), 0.5e-3);
  assert_near(predict_program(p, &large, true), 1.5e-3);
  assert_near(predict_program(p, &small, false), 2e-3);
  brim_text_release(&name);
  brim_graph_free(small.graph);
  brim_graph_free(large.graph);
  brim_profile_close(p);
}

/* If steps contradict a time but a second measurement confirms it, it is trusted. */
static void doubtful_times_are_missing_until_measured_again(void **state)
{
  char path[SCRATCH_PATH];
  brim_profile *p = NULL;
  snprintf(path, sizeof path, "%s", scratch("doubted.jsonl"));
  assert_int_equal(brim_profile_open(path, &subject, &p), BRIM_OK);
  brim_profile_add(p, "a", 1, 1e-3, 0);
  brim_profile_add(p, "b", 1, 1e-3, 0);
  brim_profile_add(p, "unused", 1, 1e-3, 0);
  assert_false(brim_profile_lacks(p, "a", 1) || brim_profile_lacks(p, "b", 1));
  assert_true(brim_profile_lacks(p, "a", 2));
  assert_int_equal(brim_profile_doubt(p), 2);
  assert_int_equal(brim_profile_doubt(p), 0);
  assert_int_equal(brim_profile_save(p), BRIM_OK);
  brim_profile_close(p);
  assert_int_equal(brim_profile_open(path, &subject, &p), BRIM_OK);
  assert_true(brim_profile_lacks(p, "a", 1) && brim_profile_lacks(p, "b", 1));
  assert_false(brim_profile_lacks(p, "unused", 1));
  assert_true(brim_profile_find(p, "a", 1)->seconds > 0); /* the old value stays until the next measurement */
  brim_profile_add(p, "a", 1, 1.1e-3, 0);
  brim_profile_add(p, "b", 1, 2e-3, 0);
  assert_true(brim_profile_find(p, "a", 1)->sure && !brim_profile_find(p, "b", 1)->sure);
  assert_int_equal(brim_profile_doubt(p), 2); /* b, and `unused`, which was looked up above */
  assert_false(brim_profile_lacks(p, "a", 1));
  brim_profile_close(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(doubtful_times_are_missing_until_measured_again),
      cmocka_unit_test(saved_data_reads_back),
      cmocka_unit_test(two_processes_keep_each_others_times),
      cmocka_unit_test(an_invalid_file_is_refused_with_its_line),
      cmocka_unit_test(a_file_need_not_name_its_device),
      cmocka_unit_test(a_runs_copy_has_the_used_times_and_equal_times_give_equal_bytes),
      cmocka_unit_test(other_micro_batches_are_interpolated_and_extrapolated),
      cmocka_unit_test(a_signature_is_the_same_in_other_layers_and_micro_batches),
      cmocka_unit_test(programs_run_as_a_whole_take_a_fraction_of_the_sum),
      cmocka_unit_test(untimed_shapes_are_guessed_from_their_operation_or_from_all),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
