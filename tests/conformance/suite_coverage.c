/* Prints the suite's table: operation, cases, worst error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/suite.h"

static tally tally_of_op[256], tally_of_row[256];
int tensors_by_layout[3];

void count_case(tally *t, enum oracle oracle, double error)
{
  t->cases[oracle]++;
  if (error > t->worst[oracle]) t->worst[oracle] = error;
}

static tally *tally_for_row(const bench_row *row)
{
  size_t i = 0;
  while (__start_bench_rows[i] != row) i++;
  return &tally_of_row[i];
}

/* A row of several operations counts only for the operation that has the row's name. */
tally *tally_for(const bench_row *row, const char *op)
{
  if (row->composite && strcmp(row->name, op) != 0) return tally_for_row(row);
  for (size_t i = 0; i < brim_op_count(); i++)
    if (strcmp(brim_op_at(i)->name, op) == 0) return &tally_of_op[i];
  return NULL;
}

static void print_line(const char *name, const tally *t)
{
  printf("%-30s", name);
  for (int oracle = 0; oracle < ORACLE_COUNT; oracle++) {
    if (t->cases[oracle])
      printf("  %6d cases  worst %.1e", t->cases[oracle], t->worst[oracle]);
    else
      printf("  %6s %21s", "-", "");
  }
  printf("\n");
}

/* True for an operation that no backend needs (brim/ops.h) and the tested one lacks: a fused one, or cast, which only
 * 16-bit storage needs. */
static bool may_lack(const char *op)
{
  return (strchr(op, '+') || strcmp(op, "cast") == 0) && !bench_offers(&tested, op);
}

/* Only a run of every row can show that an operation has no cases. */
static bool every_row(void)
{
  return BENCH_SHARE == 1 && !some_rows();
}

/* Returns the least number of cases of an operation; BENCH_CASES reduces it to one. */
static int cases_least(void)
{
  return getenv("BENCH_CASES") ? 1 : 20;
}

static int tested_cases(const tally *t)
{
  return t->cases[BY_REFERENCE] + t->cases[BY_REFERENCE_BF16] + t->cases[BY_REFERENCE_F16];
}

void test_every_operation_has_cases(void **state)
{
  printf("\n%-30s  %-27s  %-27s  %-27s  %s\n", "operation", "reference by differences", tested_id, "in bf16",
         "in fp16");
  for (size_t i = 0; i < brim_op_count(); i++) print_line(brim_op_at(i)->name, &tally_of_op[i]);
  BENCH_EACH_ROW (row)
    if (row->composite) print_line(row->name, tally_for_row(row));
  printf("results of %s: %d plain, %d with channels in blocks, %d with channels last\n\n", tested_id,
         tensors_by_layout[0], tensors_by_layout[1], tensors_by_layout[2]);
  for (size_t i = 0; tested.ops && every_row() && i < brim_op_count(); i++)
    if (tested_cases(&tally_of_op[i]) < cases_least() && !may_lack(brim_op_at(i)->name))
      fail_msg("operation %s has %d cases: add a row to tests/conformance/rows*.c", brim_op_at(i)->name,
               tally_of_op[i].cases[BY_REFERENCE]);
  for (size_t i = 0; !alone && every_row() && i < brim_op_count(); i++) /* operations that have gradients */
    if (tally_of_op[i].cases[BY_DIFFERENCES] > 0 && tally_of_op[i].cases[BY_DIFFERENCES] < cases_least())
      fail_msg("operation %s has only %d cases by differences", brim_op_at(i)->name,
               tally_of_op[i].cases[BY_DIFFERENCES]);
}
