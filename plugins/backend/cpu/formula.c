/* Runs formulas (brim/formula.h) as generated machine code (formula_code.cpp) or by simd_formula.c. The latter runs
 * each line over a block of values before the next line, so it looks up a line's vector code once per block. It reads
 * inputs and writes outputs in place, without a copy, if no later line reads the old value. Elements are processed in
 * the memory order of the first input; inputs in another order are converted first. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "formula_code.h"

enum { PIECE = 16384, NONE = -1 }; /* PIECE: elements of a task, as in the other updates */

/* ---- the plan of a formula ---- */

/* Returns the last line before line `at` that writes register `from`, or NONE. */
static int32_t writer_of(const brim_formula *f, uint32_t at, uint8_t from)
{
  for (uint32_t k = at; k-- > 0;)
    if (f->line[k].op != BRIM_FORMULA_STORE && f->line[k].to == from) return (int32_t)k;
  return NONE;
}

/* Returns whether input i and output k may share memory. An update declares that they do; in other nodes the plan may
 * put the first output over any input (BRIM_OP's inplace). */
static bool may_share(const brim_node *n, uint32_t i, uint32_t k)
{
  return n->out[k] == n->in[i] || (k == 0 && n->out[0] != n->in[0]);
}

/* Returns whether line `at` reads an input that may share memory with output `k`. */
static bool reads_place_of(const brim_formula *f, const brim_node *n, uint32_t at, uint32_t k)
{
  const brim_formula_line *l = &f->line[at];
  const uint8_t operand[] = {l->a, l->b, l->c};
  for (int o = 0; l->op != BRIM_FORMULA_LOAD && o < 3; o++) {
    if (operand[o] >= BRIM_FORMULA_UNIFORM) continue;
    const int32_t writer = writer_of(f, at, operand[o]);
    if (writer != NONE && f->line[writer].op == BRIM_FORMULA_LOAD && may_share(n, f->line[writer].a, k)) return true;
  }
  return false;
}

static bool is_read_later(const brim_formula *f, const brim_node *n, uint32_t from, uint32_t k)
{
  for (uint32_t at = from + 1; at < f->lines; at++)
    if (reads_place_of(f, n, at, k)) return true;
  return false;
}

/* Returns whether the value that line `at` loads is stored after another output may have overwritten that input. */
static bool is_stored_late(const brim_formula *f, const brim_node *n, uint32_t at)
{
  bool overwritten = false;
  for (uint32_t k = f->loads; k < f->lines; k++) {
    const brim_formula_line *store = &f->line[k];
    if (store->op != BRIM_FORMULA_STORE) continue;
    if (overwritten && store->a < BRIM_FORMULA_UNIFORM && writer_of(f, k, store->a) == (int32_t)at) return true;
    overwritten = overwritten || may_share(n, f->line[at].a, store->to);
  }
  return false;
}

/* Returns the output that a line's value may be written to directly, or NONE. */
static int32_t output_of(const brim_formula *f, const brim_node *n, uint32_t at)
{
  for (uint32_t k = f->loads; k < f->lines; k++) {
    const brim_formula_line *store = &f->line[k];
    if (store->op != BRIM_FORMULA_STORE || store->a >= BRIM_FORMULA_UNIFORM) continue;
    if (writer_of(f, k, store->a) == (int32_t)at && !is_read_later(f, n, at, store->to)) return store->to;
  }
  return NONE;
}

static uint8_t place_of(const uint8_t *now, uint8_t operand)
{
  return operand < BRIM_FORMULA_UNIFORM ? now[operand] : (uint8_t)(CPU_PLACE_UNIFORM + operand - BRIM_FORMULA_UNIFORM);
}

static void plan_formula(const brim_formula *f, const brim_node *n, cpu_formula *out)
{
  uint8_t now[BRIM_FORMULA_UNIFORM] = {0}; /* for each register, the place that now holds its value */
  for (uint32_t at = 0; at < f->lines; at++) {
    const brim_formula_line *l = &f->line[at];
    if (l->op == BRIM_FORMULA_LOAD) {
      const uint8_t place = (uint8_t)(CPU_PLACE_INPUT + l->a);
      const bool copied = is_stored_late(f, n, at);
      if (copied) out->line[out->lines++] = (brim_formula_line){BRIM_FORMULA_STORE, l->to, place, 0, 0};
      now[l->to] = copied ? l->to : place;
      out->is_read |= 1u << l->a;
      continue;
    }
    brim_formula_line made = {l->op, 0, place_of(now, l->a), place_of(now, l->b), place_of(now, l->c)};
    if (l->op == BRIM_FORMULA_STORE) {
      made.to = (uint8_t)(CPU_PLACE_OUTPUT + l->to);
      if (made.a == made.to) continue; /* the value is already in the output */
    } else {
      const int32_t to = output_of(f, n, at);
      made.to = now[l->to] = to == NONE ? l->to : (uint8_t)(CPU_PLACE_OUTPUT + to);
    }
    out->line[out->lines++] = made;
  }
}

/* The scratch begins with uniforms and one-element inputs, each repeated to fill a vector. Then each thread has its
 * registers, and whole vectors for the elements of inputs and outputs after the last whole vector. */
typedef struct scratch {
  float splat[CPU_PLACES][CPU_FORMULA_LANES];
} scratch;
enum { RESTS = 2 * BRIM_FORMULA_OPERANDS_MAX };

typedef struct prepared {
  cpu_formula plan;
  void *code;
  cpu_formula_code entry; /* the entry of `code`, or NULL */
} prepared;

static int64_t register_values(const brim_formula *f, const prepared *how)
{
  return how->entry ? 0 : (int64_t)f->registers * CPU_FORMULA_BLOCK;
}
static int64_t thread_values(const brim_formula *f, const prepared *how)
{
  return register_values(f, how) + RESTS * CPU_FORMULA_LANES;
}

static CPU_PREPARE(formula_prepare)
{
  const cpu_backend *b = self;
  const brim_formula *f = node->attr.formula.formula;
  prepared *how = brim_try_calloc(1, sizeof *how);
  if (!how) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a formula");
  plan_formula(f, node, &how->plan);
  how->code = cpu_formula_code_make(f, node, b->isa, &how->entry);
  need->workspace_bytes = sizeof(scratch) + (uint64_t)b->threads * (uint64_t)thread_values(f, how) * sizeof(float);
  *state = how;
  return cpu_same_order_prepare(self, program, node, need, state);
}

static void formula_release(void *self, void *state)
{
  (void)self;
  prepared *how = state;
  if (how) cpu_formula_code_free(how->code);
  free(how);
}

/* ---- running ---- */

typedef struct work {
  const brim_launch *launch;
  const prepared *how;
  const float *in[BRIM_FORMULA_OPERANDS_MAX]; /* all inputs and outputs have the memory order of the first input */
  cpu_formula_run run;
  cpu_formula_places common; /* common to all blocks */
  const float *same;         /* repeated values of the places that have one value for all elements */
  float *threads;            /* scratch of the first thread */
  int64_t count, register_values, thread_values;
} work;

/* Runs the formula on whole vectors. */
static void run_vectors(const work *w, const cpu_formula_places *p, int64_t count)
{
  if (w->how->entry)
    w->how->entry(&p->at[CPU_PLACE_INPUT], w->same, count * (int64_t)sizeof(float));
  else
    w->run(&w->how->plan, p, count);
}

static bool is_moved(const work *w, const cpu_formula_places *p, uint32_t input)
{
  return (w->how->plan.is_read >> input & 1) && p->mask[CPU_PLACE_INPUT + input];
}

/* Processes the elements after the last whole vector in copies of whole vectors. An output that is also an input uses
 * the input's copy, because the machine code has one pointer for both. */
static void run_rest(const work *w, const cpu_formula_places *p, float *rest, int64_t count)
{
  const brim_node *n = w->launch->node;
  cpu_formula_places with = *p;
  memset(rest, 0, RESTS * CPU_FORMULA_LANES * sizeof *rest);
  for (uint32_t k = 0; k < n->out_count; k++)
    with.at[CPU_PLACE_OUTPUT + k] = rest + (size_t)(BRIM_FORMULA_OPERANDS_MAX + k) * CPU_FORMULA_LANES;
  for (uint32_t i = 0; i < n->in_count; i++) {
    if (!is_moved(w, p, i)) continue;
    with.at[CPU_PLACE_INPUT + i] = rest + (size_t)i * CPU_FORMULA_LANES;
    memcpy(with.at[CPU_PLACE_INPUT + i], p->at[CPU_PLACE_INPUT + i], (size_t)count * sizeof *rest);
    for (uint32_t k = 0; k < n->out_count; k++)
      if (n->out[k] == n->in[i]) with.at[CPU_PLACE_OUTPUT + k] = with.at[CPU_PLACE_INPUT + i];
  }
  run_vectors(w, &with, CPU_FORMULA_LANES);
  for (uint32_t k = 0; k < n->out_count; k++)
    memcpy(p->at[CPU_PLACE_OUTPUT + k], with.at[CPU_PLACE_OUTPUT + k], (size_t)count * sizeof *rest);
}

static void move(const work *w, cpu_formula_places *p, int64_t at)
{
  const brim_launch *launch = w->launch;
  for (uint32_t i = 0; i < launch->node->in_count; i++)
    if (is_moved(w, p, i)) p->at[CPU_PLACE_INPUT + i] = (float *)w->in[i] + at;
  for (uint32_t k = 0; k < launch->node->out_count; k++) p->at[CPU_PLACE_OUTPUT + k] = (float *)launch->out[k] + at;
}

static void formula_piece(void *arg, int64_t task, int32_t thread)
{
  const work *w = arg;
  cpu_formula_places p = w->common;
  float *own = w->threads + thread * w->thread_values;
  const int64_t end = cpu_min((task + 1) * PIECE, w->count), block = w->how->entry ? PIECE : CPU_FORMULA_BLOCK;
  for (int64_t r = 0; r < w->register_values / CPU_FORMULA_BLOCK; r++) p.at[r] = own + r * CPU_FORMULA_BLOCK;
  for (int64_t at = task * PIECE; at < end; at += block) {
    const int64_t count = cpu_min(block, end - at), whole = count / CPU_FORMULA_LANES * CPU_FORMULA_LANES;
    move(w, &p, at);
    if (whole > 0) run_vectors(w, &p, whole);
    if (whole == count) continue;
    move(w, &p, at + whole);
    run_rest(w, &p, own + w->register_values, count - whole);
  }
}

static float *splat(scratch *s, int place, float value)
{
  for (int i = 0; i < CPU_FORMULA_LANES; i++) s->splat[place][i] = value;
  return s->splat[place];
}

static CPU_RUN(formula_run)
{
  static const cpu_formula_run *const tables[] = {CPU_OF_ISAS(&, cpu_formula)};
  cpu_backend *b = self;
  const brim_node *n = launch->node;
  const brim_formula *f = n->attr.formula.formula;
  scratch *s = cpu_same_order_end(launch);
  double uniform[BRIM_FORMULA_UNIFORMS_MAX];
  work w = {.launch = launch,
            .how = launch->state,
            .run = *tables[b->isa],
            .same = s->splat[0],
            .threads = (float *)(s + 1),
            .count = brim_shape_count(&n->out[0]->shape),
            .register_values = register_values(f, launch->state),
            .thread_values = thread_values(f, launch->state)};
  for (uint32_t i = 0; i < n->in_count; i++) w.in[i] = cpu_same_order_input(b, launch, i);
  brim_formula_uniforms(f, launch->step->scalar, (const void *const *)launch->in, uniform);
  for (int i = 0; i < CPU_PLACE_UNIFORM; i++) w.common.mask[i] = ~INT64_C(0);
  for (uint32_t i = 0; i < f->uniforms; i++)
    w.common.at[CPU_PLACE_UNIFORM + i] = splat(s, CPU_PLACE_UNIFORM + (int)i, (float)uniform[i]);
  for (uint32_t i = 0; i < n->in_count; i++)
    if (w.how->plan.is_read >> i & 1 && brim_shape_count(&n->in[i]->shape) == 1) {
      w.common.at[CPU_PLACE_INPUT + i] = splat(s, CPU_PLACE_INPUT + (int)i, *(const float *)launch->in[i]);
      w.common.mask[CPU_PLACE_INPUT + i] = 0;
    }
  cpu_pool_run(b->pool, cpu_divide_up(w.count, PIECE), formula_piece, &w);
  return BRIM_OK;
}

CPU_KERNEL(formula) = {.op = "formula", .prepare = formula_prepare, .run = formula_run, .release = formula_release};
