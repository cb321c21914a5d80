/* The operations that move values: concat, slice, pad. Values have four bytes (real or i32) and are copied in runs.
 *
 * A tensor of rank 4 in blocks of channels is treated as a plain tensor [N, C/b, H, W] whose elements have b values,
 * and one with channels last as [N, H, W, C]. So concat, slice and pad keep these memory orders. If a block would be
 * split, the kernel first converts the inputs to plain order, and the result is plain. */
#include "cpu.h"

enum { TASK_FLOATS = 16384 }; /* floats moved per task, approximately: 64 KiB */

/* The memory order of a node is a channel block (1: plain) or this value. */
#define CHANNELS_LAST ((int64_t)-1)

/* Returns the order of x if the results can have the same order, else 1 (plain). `whole`: no block of channels is
 * split. */
static int64_t order_of(const brim_tensor *x, bool whole)
{
  if (x->channel_block == 1) return 1;
  if ((x->channel_block == 8 || x->channel_block == 16) && whole) return x->channel_block;
  return x->channel_block == x->shape.dim[1] ? CHANNELS_LAST : 1;
}

static int64_t block_in(const brim_tensor *t, int64_t order)
{
  return order == CHANNELS_LAST ? t->shape.dim[1] : order;
}

/* The dimensions of a tensor in memory order. An element has `unit` values. */
typedef struct view {
  int32_t rank, place[BRIM_DIMS_MAX]; /* place: the position of each logical dimension */
  int64_t dim[BRIM_DIMS_MAX], unit;
} view;

static view view_of(const brim_tensor *t, int64_t order)
{
  static const int32_t last[] = {0, 3, 1, 2};
  view v = {.rank = t->shape.rank, .unit = order == CHANNELS_LAST ? 1 : order};
  for (int32_t d = 0; d < v.rank; d++) {
    v.place[d] = order == CHANNELS_LAST ? last[d] : d;
    v.dim[v.place[d]] = t->shape.dim[d];
  }
  if (v.unit != 1) v.dim[1] /= v.unit;
  return v;
}

static int64_t outer_of(const view *v, int32_t axis)
{
  int64_t count = 1;
  for (int32_t d = 0; d < axis; d++) count *= v->dim[d];
  return count;
}
static int64_t inner_of(const view *v, int32_t axis)
{
  int64_t count = v->unit;
  for (int32_t d = axis + 1; d < v->rank; d++) count *= v->dim[d];
  return count;
}

/* `count` runs of `run` values each. Runs begin `from_stride` values apart in `from`, and `to_stride` in `to`. */
typedef struct runs {
  const float *from;
  float *to;
  int64_t count, run, from_stride, to_stride, per_task;
} runs;

static void move_some(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const runs *r = arg;
  for (int64_t i = task * r->per_task; i < cpu_min((task + 1) * r->per_task, r->count); i++)
    memcpy(r->to + i * r->to_stride, r->from + i * r->from_stride, (size_t)r->run * sizeof *r->to);
}

static void move_runs(cpu_backend *b, runs r)
{
  r.per_task = cpu_max(1, TASK_FLOATS / r.run);
  cpu_pool_run(b->pool, cpu_divide_up(r.count, r.per_task), move_some, &r);
}

/* ---- concat ---- */

static int64_t concat_order(const brim_node *node)
{
  bool whole = true;
  for (uint32_t i = 0; i < node->in_count && node->in[0]->channel_block != 1; i++)
    whole = whole && node->in[i]->shape.dim[1] % node->in[0]->channel_block == 0;
  return order_of(node->in[0], whole);
}

/* Sets the result's order, and requests scratch for converting inputs to it. */
static void prepare_order(const brim_node *node, int64_t order, brim_kernel_need *need)
{
  cpu_layout_set(node->out[0], block_in(node->out[0], order));
  for (uint32_t i = 0; i < node->in_count; i++)
    need->workspace_bytes += cpu_aligned(cpu_layout_bytes(node->in[i], block_in(node->in[i], order)));
}

static CPU_PREPARE(concat_prepare)
{
  (void)self;
  (void)program;
  (void)state;
  prepare_order(node, concat_order(node), need);
  return BRIM_OK;
}

static CPU_RUN(concat_run)
{
  const brim_node *node = launch->node;
  const int64_t order = concat_order(node);
  const view y = view_of(node->out[0], order);
  const int32_t axis = y.place[node->attr.move.axis];
  char *workspace = launch->workspace;
  float *to = launch->out[0];
  for (uint32_t i = 0; i < node->in_count; i++) {
    const view x = view_of(node->in[i], order);
    const int64_t block = block_in(node->in[i], order);
    const float *from = cpu_layout_of(self, node->in[i], launch->in[i], block, workspace);
    workspace += cpu_aligned(cpu_layout_bytes(node->in[i], block));
    const int64_t run = x.dim[axis] * inner_of(&x, axis);
    move_runs(self, (runs){.from = from,
                           .to = to,
                           .count = outer_of(&x, axis),
                           .run = run,
                           .from_stride = run,
                           .to_stride = y.dim[axis] * inner_of(&y, axis)});
    to += run;
  }
  return BRIM_OK;
}

CPU_KERNEL(concat) = {.op = "concat", .prepare = concat_prepare, .run = concat_run};

/* ---- slice ---- */

/* Returns the order for slice or pad. `cut`: the channel at which the smaller of x and y begins in the other. */
static int64_t cut_order(const brim_node *node, int64_t cut)
{
  const brim_tensor *x = node->in[0];
  if (x->channel_block == 1) return 1;
  return order_of(x, cut % x->channel_block == 0 && node->out[0]->shape.dim[1] % x->channel_block == 0);
}

static int64_t slice_order(const brim_node *node)
{
  return cut_order(node, node->attr.move.axis == 1 ? node->attr.move.start : 0);
}

static CPU_PREPARE(slice_prepare)
{
  (void)self;
  (void)program;
  (void)state;
  prepare_order(node, slice_order(node), need);
  return BRIM_OK;
}

static CPU_RUN(slice_run)
{
  const brim_node *node = launch->node;
  const int64_t order = slice_order(node), block = block_in(node->in[0], order);
  const view x = view_of(node->in[0], order), y = view_of(node->out[0], order);
  const float *from = cpu_layout_of(self, node->in[0], launch->in[0], block, launch->workspace);
  const int32_t axis = x.place[node->attr.move.axis];
  const int64_t inner = inner_of(&x, axis), start = node->attr.move.start / (axis == 1 ? x.unit : 1);
  move_runs(self, (runs){.from = from + start * inner,
                         .to = launch->out[0],
                         .count = outer_of(&x, axis),
                         .run = y.dim[axis] * inner,
                         .from_stride = x.dim[axis] * inner,
                         .to_stride = y.dim[axis] * inner});
  return BRIM_OK;
}

CPU_KERNEL(slice) = {.op = "slice", .prepare = slice_prepare, .run = slice_run};

/* ---- pad ---- */

/* y is a list of rows. A row spans all dimensions from the last padded one on. It consists of padding, values of x and
 * padding, or of padding alone. */
typedef struct padding {
  view x, y;
  int64_t before[BRIM_DIMS_MAX]; /* elements of padding before x */
  int32_t last;
  int64_t rows, per_task, row, run, lead; /* a row has `lead` values of padding, then `run` values of x */
  const float *from;
  float *to;
  int32_t value; /* the bits of the value */
} padding;

static void fill(float *to, int32_t value, int64_t count)
{
  for (int64_t i = 0; i < count; i++) memcpy(to + i, &value, sizeof value);
}

/* Returns the row of x in this row of y, or -1 if the row is padding alone. */
static int64_t inner_row(const padding *p, int64_t row)
{
  int64_t at = 0, step = 1;
  for (int32_t d = p->last - 1; d >= 0; d--) {
    const int64_t place = row % p->y.dim[d] - p->before[d];
    if (place < 0 || place >= p->x.dim[d]) return -1;
    at += place * step;
    step *= p->x.dim[d];
    row /= p->y.dim[d];
  }
  return at;
}

static void pad_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const padding *p = arg;
  for (int64_t i = task * p->per_task; i < cpu_min((task + 1) * p->per_task, p->rows); i++) {
    const int64_t from = inner_row(p, i);
    float *to = p->to + i * p->row;
    if (from < 0) {
      fill(to, p->value, p->row);
      continue;
    }
    fill(to, p->value, p->lead);
    memcpy(to + p->lead, p->from + from * p->run, (size_t)p->run * sizeof *to);
    fill(to + p->lead + p->run, p->value, p->row - p->lead - p->run);
  }
}

static CPU_PREPARE(pad_prepare)
{
  (void)self;
  (void)program;
  (void)state;
  prepare_order(node, cut_order(node, node->attr.move.before[1]), need);
  return BRIM_OK;
}

static CPU_RUN(pad_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  const int64_t order = cut_order(node, node->attr.move.before[1]);
  padding p = {.x = view_of(node->in[0], order), .y = view_of(node->out[0], order), .to = launch->out[0]};
  for (int32_t d = 0; d < p.y.rank; d++) {
    const int32_t at = p.y.place[d];
    p.before[at] = node->attr.move.before[d] / (d == 1 ? p.y.unit : 1);
    if (p.y.dim[at] != p.x.dim[at] && at > p.last) p.last = at;
  }
  const int64_t inner = inner_of(&p.y, p.last);
  p.rows = outer_of(&p.y, p.last);
  p.row = p.y.dim[p.last] * inner;
  p.run = p.x.dim[p.last] * inner;
  p.lead = p.before[p.last] * inner;
  p.per_task = cpu_max(1, TASK_FLOATS / p.row);
  const float real = (float)node->attr.move.value;
  if (node->out[0]->dtype == BRIM_DTYPE_I32)
    p.value = (int32_t)node->attr.move.value;
  else
    memcpy(&p.value, &real, sizeof real);
  p.from = cpu_layout_of(b, node->in[0], launch->in[0], block_in(node->in[0], order), launch->workspace);
  cpu_pool_run(b->pool, cpu_divide_up(p.rows, p.per_task), pad_rows, &p);
  return BRIM_OK;
}

CPU_KERNEL(pad) = {.op = "pad", .prepare = pad_prepare, .run = pad_run};
