/* See suite.h. */
#include "conformance/suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

/* ---- cases ---- */

bench_options case_of(const bench_row *row, int i)
{
  static const int64_t batches[11] = {1, 16, 7, 32, 3, 17, 40, 19, 2, 33, 48}, grains[7] = {0, 16, 4, 16, 0, 16, 1};
  bench_options o = {.row = row, .seed = 1000 + (uint64_t)i};
  o.batch = batches[i % 11];
  o.grain = grains[i % 7];
  o.size = (enum bench_size)(i % SIZE_COUNT);
  o.context = (unsigned)(i / 2 % CONTEXT_COUNT);
  o.values = (enum bench_values)(i % VALUES_COUNT);
  o.gradients_at_zero = i % 4 < 2;
  o.first_sample = 5 * (i % 3);
  o.evaluate = row->by_sample && i % 8 == 5;
  if (row->large) { /* slow on the reference; whole grains are covered when the batch is split */
    o.batch = i ? 3 : 2;
    o.context = BARE;
    o.values = VALUES_UNIFORM;
  }
  return o;
}

int cases_of(const bench_row *row, int count)
{
  const char *text = getenv("BENCH_CASES"), *more = getenv("BENCH_LARGE");
  const long most = text ? strtol(text, NULL, 10) : count;
  /* Large cases run the same code as small ones, so sanitizers skip them. */
  const int large = BENCH_SHARE > 1 ? 0 : count >= CASES ? 2 : 1;
  if (row->large && more) return (int)strtol(more, NULL, 10);
  const int cases = row->large ? large : count / BENCH_SHARE;
  return most > 0 && most < cases ? (int)most : cases;
}

bool offered(const bench_row *row)
{
  bench *b = bench_create(&(bench_options){.backend = &reference, .row = row, .seed = 1, .batch = 2});
  bool all = true;
  for (size_t i = 0; i < b->g->node_count; i++) all = all && bench_offers(&tested, b->g->node[i]->op);
  bench_free(b);
  return all;
}

void skip_without_tested(void)
{
  if (tested.ops) return;
  printf("SKIPPED: backend %s was not built\n", tested_id);
  skip();
}

bool stores(uint32_t activations)
{
  const size_t size = offsetof(brim_backend_ops, stores) + sizeof tested.ops->stores;
  return tested.ops->size >= size && tested.ops->stores & BRIM_STORES(activations);
}

bool some_rows(void)
{
  return getenv("BENCH_ROWS") || getenv("BENCH_SHARD");
}

/* ---- errors ---- */

#define PROBLEMS_SHOWN 25
static int problems;

void problem(const char *format, ...)
{
  va_list list;
  if (problems++ >= PROBLEMS_SHOWN) return;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
}

void fail_if_problems(void)
{
  const int count = problems;
  problems = 0;
  if (count) fail_msg("%d problems (the first %d are shown above)", count, PROBLEMS_SHOWN);
}

double relative_error(const double *a, const double *b, int64_t count)
{
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : sqrt(difference) / fmax(sqrt(norm), 1e-30);
}

/* Returns a text such as "conv2d, seed 12, N 17, grain 16, context 3, values 0: x [17, 3, 9, 9] -> y [...]". */
const char *describe(const bench *b, const brim_node *n)
{
  static char text[1024];
  char shape[96];
  brim_text out = {0};
  brim_text_printf(&out, "%s, seed %llu, grain %lld, context %u, values %d: %s", b->o.row->name,
                   (unsigned long long)b->o.seed, (long long)b->o.grain, b->o.context, (int)b->o.values, n->op);
  for (uint32_t i = 0; i < n->in_count; i++)
    brim_text_printf(&out, " %s %s/%lld", n->in[i]->name, brim_shape_format(shape, sizeof shape, &n->in[i]->shape),
                     (long long)n->in[i]->channel_block);
  brim_text_add(&out, " ->");
  for (uint32_t i = 0; i < n->out_count; i++)
    brim_text_printf(&out, " %s %s/%lld", n->out[i]->name, brim_shape_format(shape, sizeof shape, &n->out[i]->shape),
                     (long long)n->out[i]->channel_block);
  snprintf(text, sizeof text, "%s", brim_text_str(&out));
  brim_text_release(&out);
  return text;
}
