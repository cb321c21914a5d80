/* brim/engine.h compared with PyTorch: trainings of random networks, which tests/golden/make_engine.py wrote with
 * PyTorch's numbers to tests/golden/engine.txt. On the reference backend they must agree in double precision; on the
 * cpu backend as well as PyTorch's own single precision does.
 *
 *   test_engine_golden                     checks the file
 *   test_engine_golden FILE BACKEND OUT    writes brim's results for the trainings in FILE, for make_engine.py */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/described.h"

enum { SUMS = 900 }; /* the stream of the factors by which values are multiplied */

static brim_engine *open_engine(const char *backend)
{
  const brim_engine_options options = {.size = sizeof options, .backend = backend};
  brim_engine *engine = NULL;
  if (brim_engine_open(&options, &engine) != BRIM_OK) fprintf(stderr, "engine: %s\n", brim_error_text());
  return engine;
}

/* Returns the sum of the values, each times its factor. *size: the maximum change of the sum by rounding each value to
 * float. */
static double sum_of(uint64_t seed, uint64_t stream, const float *value, uint64_t count, double *size)
{
  double sum = 0;
  *size = 0;
  for (uint64_t i = 0; i < count; i++) {
    const double term = value[i] * described_number(seed, stream, i);
    sum += term;
    *size += fabs(term);
  }
  *size /= 1 << 24;
  return sum;
}

static void check_sum(const described *d, const char *what, uint64_t stream, const float *value, uint64_t count,
                      double expected, double tolerance)
{
  double rounding;
  const double sum = sum_of(d->seed, stream, value, count, &rounding);
  const double allowed = rounding + (tolerance > 0 ? tolerance : 1e-10 + 1e-8 * fabs(expected));
  if (!(fabs(sum - expected) <= allowed))
    fail_msg("%s: %s: the sum is %.12g, not %.12g (by %.2g; %.2g are allowed)", d->name, what, sum, expected,
             fabs(sum - expected), allowed);
}

/* In double precision, the file's tolerances are ignored. */
static void check(const described *d, brim_engine *engine, bool is_double)
{
  described_result r;
  if (described_train(d, engine, &r) != BRIM_OK) fail_msg("%s: %s", d->name, brim_error_text());
  for (int i = 0; i < d->steps; i++) {
    const double tolerance = is_double ? 1e-10 * (1 + fabs(d->expected_loss[i])) : d->loss_tolerance;
    if (!(fabs(r.loss[i] - d->expected_loss[i]) <= tolerance))
      fail_msg("%s: the loss of step %d is %.12g, not %.12g", d->name, i, r.loss[i], d->expected_loss[i]);
  }
  for (int p = 0; p < d->parameter_count; p++) {
    const described_parameter *e = &d->parameter[p];
    check_sum(d, e->name, SUMS + (uint64_t)p, r.parameter[p], e->count, e->sum, is_double ? 0 : e->tolerance);
  }
  if (r.answers)
    check_sum(d, "answers", SUMS - 1, r.answers, r.answer_count, d->answers_sum, is_double ? 0 : d->answers_tolerance);
  described_result_free(&r);
}

static void check_file(const char *backend, bool is_double)
{
  static described d;
  int count = 0;
  brim_engine *engine = open_engine(backend);
  FILE *file = fopen(BRIM_TESTS_DIR "/golden/engine.txt", "r");
  assert_non_null(engine);
  assert_non_null(file);
  for (; described_read(file, &d); count++) check(&d, engine, is_double);
  assert_true(count >= 120);
  fclose(file);
  brim_engine_close(engine);
}

static void double_precision_matches_pytorch(void **state)
{
  check_file("reference", true);
}

static void single_precision_is_as_close_as_pytorch(void **state)
{
  check_file("cpu", false);
}

static void write_values(FILE *out, const char *name, const float *value, uint64_t count)
{
  fprintf(out, "values %s %llu", name, (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) fprintf(out, " %.9g", (double)value[i]);
  fputc('\n', out);
}

static int write_results(const char *path, const char *backend, const char *to)
{
  static described d;
  FILE *file = fopen(path, "r"), *out = fopen(to, "w");
  brim_engine *engine = file && out ? open_engine(backend) : NULL;
  while (engine && described_read(file, &d)) {
    described_result r;
    const brim_status status = described_train(&d, engine, &r);
    fprintf(out, "case %s %s\n", d.name, brim_status_name(status));
    if (status != BRIM_OK) {
      fprintf(out, "error %s\n", brim_error_text());
    } else {
      fprintf(out, "losses");
      for (int i = 0; i < d.steps; i++) fprintf(out, " %.17g", r.loss[i]);
      fputc('\n', out);
      for (int p = 0; p < d.parameter_count; p++)
        write_values(out, d.parameter[p].name, r.parameter[p], d.parameter[p].count);
      if (r.answers) write_values(out, "-", r.answers, r.answer_count);
    }
    fflush(out);
    described_result_free(&r);
  }
  brim_engine_close(engine);
  if (file) fclose(file);
  if (out) fclose(out);
  return engine ? 0 : 1;
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(double_precision_matches_pytorch),
                                     cmocka_unit_test(single_precision_is_as_close_as_pytorch)};
  if (argc == 4) return write_results(argv[1], argv[2], argv[3]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
