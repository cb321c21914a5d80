/* Rows of the updates whose states are not simply as the parameter is; the others are in rows.c. */
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

/* Now and then of many tiles: rows_max x columns_max. */
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
