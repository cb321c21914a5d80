/* Rows of the updates whose states do not have the parameter's shape and type; the others are in rows.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/formula.h"
#include "brim/code8.h"
#include "conformance/bench.h"

typedef struct updated {
  brim_tensor *in[3 + BRIM_OPTIMIZER_STATES_MAX], *out[1 + BRIM_OPTIMIZER_STATES_MAX];
  uint32_t states;
} updated;

static updated begin(bench *b, const brim_shape *shape)
{
  updated u = {0};
  u.in[0] = u.out[0] = bench_parameter(b, "p", shape, 1);
  u.in[1] = b->g->parameter[0].gradient;
  return u;
}

static void add_state(bench *b, updated *u, uint32_t dtype, const brim_shape *shape, const char *name)
{
  u->in[2 + u->states] = u->out[1 + u->states] = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, dtype, shape, name);
  u->states++;
}

static void end(bench *b, updated *u, const char *op, brim_update_attr attr)
{
  attr.no_decay = bench_pick(b, 1, 3) == 1;
  attr.scaled = bench_pick(b, 0, 1) == 1;
  uint32_t inputs = 2 + u->states;
  if (attr.scaled)
    u->in[inputs++] = brim_graph_tensor(b->g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {2}}, "scale");
  brim_graph_node_into(b->g, op, op, u->in, inputs, u->out, 1 + u->states, &(brim_attr){.update = attr});
}

/* Returns a shape that sometimes has many tiles: up to rows_max x columns_max. */
static brim_shape pick_shape(bench *b, int64_t rows_max, int64_t columns_max)
{
  const bool many = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY;
  const int64_t rows = many ? bench_pick(b, 1, rows_max) : bench_pick_channels(b);
  const int64_t columns = many ? bench_pick(b, 1, columns_max) : bench_pick_channels(b);
  switch (bench_pick(b, 1, 3)) {
  case 1:
    return (brim_shape){1, {rows * columns}};
  case 2:
    return (brim_shape){2, {rows, columns}};
  default:
    return (brim_shape){4, {rows, columns, bench_pick(b, 1, 3), bench_pick(b, 1, 3)}};
  }
}

static brim_tensor *make_lion(bench *b)
{
  const brim_shape shape = pick_shape(b, 70, 500);
  updated u = begin(b, &shape);
  add_state(b, &u, b->g->real, &shape, "m");
  end(b, &u, "lion", (brim_update_attr){0});
  return NULL;
}
BENCH_ROW(lion) = {"lion", make_lion};

static brim_tensor *make_adafactor(bench *b)
{
  const brim_shape shape = pick_shape(b, 150, 700);
  const brim_shape row = {1, {shape.dim[0]}}, column = {1, {brim_shape_count(&shape) / shape.dim[0]}};
  const brim_update_attr attr = {.averages = bench_pick(b, 0, 1) == 1,
                                 .clip = (double)bench_pick(b, 1, 20) / 10,
                                 .least = (double)bench_pick(b, 0, 2)};
  updated u = begin(b, &shape);
  if (shape.rank > 1) add_state(b, &u, b->g->real, &row, "row");
  add_state(b, &u, b->g->real, shape.rank > 1 ? &column : &shape, "column");
  if (attr.averages) add_state(b, &u, b->g->real, &shape, "m");
  end(b, &u, "adafactor", attr);
  return NULL;
}
BENCH_ROW(adafactor) = {"adafactor", make_adafactor};

static brim_tensor *make_adamw8bit(bench *b)
{
  const brim_shape shape = pick_shape(b, 70, 500), blocks = {1, {brim_code8_blocks(brim_shape_count(&shape))}};
  updated u = begin(b, &shape);
  add_state(b, &u, BRIM_DTYPE_U8, &shape, "m");
  add_state(b, &u, b->g->real, &blocks, "m_absmax");
  add_state(b, &u, BRIM_DTYPE_U8, &shape, "v");
  add_state(b, &u, b->g->real, &blocks, "v_absmax");
  end(b, &u, "adamw8bit", (brim_update_attr){0});
  return NULL;
}
BENCH_ROW(adamw8bit) = {"adamw8bit", make_adamw8bit};

/* ---- formulas ---- */

/* Formulas with every function, for values in [-1, 1). Comparisons are made before any rounding. */
static const char *const formulas[] = {
    "m = s0 * m + (1-s0) * g; v = s1 * v + (1-s1) * (g * g); p = (1-s2) * p - s3 * m / (sqrt(abs(v)) + pow(s0, 3))",
    "p = p + tanh(g) * sigmoid(m); m = erf(m) - p; v = exp(-abs(v)) * s1",
    "p = where(m < v, min(p, m), max(p, v)) + sign(g) * s0; m = (m > 0.25) * s1 - m; v = -v",
    "v = log1p(abs(v)); m = log(abs(m) + 1.5) + v; p = p / (1 + g * g) # reads v, which the first line has made\n",
    "x = g * g\ny = x * x + p\nz = y * m + x * v\nm = z + x\nv = y - z\np = x + y + z + m + v + s0"};
#define FORMULAS (sizeof formulas / sizeof formulas[0])

static brim_tensor *make_formula(bench *b)
{
  static const char *const scalars[] = {"s0", "s1", "s2", "s3", NULL};
  const brim_shape shape = pick_shape(b, 70, 500), one = {1, {1}};
  const bool scaled = bench_pick(b, 0, 1) == 1, single = bench_pick(b, 0, 3) == 0;
  updated u = begin(b, &shape);
  add_state(b, &u, b->g->real, &shape, "m");
  add_state(b, &u, b->g->real, &shape, "v");
  if (single) u.in[1] = brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, &one, "g"); /* the same for all */
  brim_update_form form = {
      .formula = formulas[bench_pick(b, 0, FORMULAS - 1)], .state_count = 2, .state = {{.name = "m"}, {.name = "v"}}};
  brim_formula *f = BRIM_ARENA_NEW(&b->g->arena, brim_formula, 1);
  if (brim_formula_read_update(&form, scalars, scaled, f) != BRIM_OK) fail_msg("%s", brim_error_text());
  uint32_t inputs = 4;
  if (scaled) u.in[inputs++] = brim_graph_tensor(b->g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {2}}, "scale");
  brim_graph_node_into(b->g, "formula", "formula", u.in, inputs, u.out, 3, &(brim_attr){.formula = {f}});
  return NULL;
}
BENCH_ROW(formula) = {"formula", make_formula};
