/* Runs a template as Jinja2 does: statements write to the output, and expressions make values. See template.h. */
#include <stdio.h>
#include <stdlib.h>

#include "brim/host.h"
#include "template_parts.h"

/* ---- limits and errors ---- */

brim_status run_fail(const run *r, const char *format, ...)
{
  char what[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  return template_fail(r->t, r->at ? r->at->at : 0, "%s", what);
}

brim_status run_no_memory(const run *r)
{
  if (r->memory.bytes > TEMPLATE_MEMORY_MAX / 2 || r->out.count > TEMPLATE_MEMORY_MAX)
    return run_fail(r, "the rendering needs more than %d MiB", TEMPLATE_MEMORY_MAX >> 20);
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for rendering '%s'", r->t->title);
}

brim_status run_steps(run *r, size_t count)
{
  r->steps += count;
  if (r->steps <= TEMPLATE_STEPS_MAX) return BRIM_OK;
  return run_fail(r, "the rendering takes more than %d steps", TEMPLATE_STEPS_MAX);
}

brim_status run_enter(run *r)
{
  if (r->depth++ < TEMPLATE_DEPTH_MAX) return BRIM_OK;
  r->depth--;
  return run_fail(r, "more than %d levels of nested statements, macros or data", TEMPLATE_DEPTH_MAX);
}

/* ---- scopes ---- */

/* Returns the name's binding in the scope. A name whose value is VALUE_ABSENT is not in the scope. */
static binding *find_in(const scope *s, int32_t name)
{
  for (binding *b = s->first; b; b = b->next)
    if (b->name == name) return b;
  return NULL;
}

/* Empties a scope. Its memory is used again. */
static void clear(scope *s)
{
  for (binding *b = s->first; b; b = b->next) b->value = value_of(VALUE_ABSENT);
}

static brim_status bind(run *r, scope *s, int32_t name, value v)
{
  binding *b = find_in(s, name);
  if (!b) {
    b = memory_take(&r->memory, sizeof *b);
    if (!b) return run_no_memory(r);
    *b = (binding){.name = name, .next = s->first};
    s->first = b;
  }
  b->value = v;
  return BRIM_OK;
}

static brim_status open_scope(run *r, scope *parent, scope **out)
{
  *out = memory_take(&r->memory, sizeof **out);
  if (!*out) return run_no_memory(r);
  **out = (scope){.parent = parent};
  return BRIM_OK;
}

static brim_status eval(run *r, const node *n, value *out);
static brim_status run_body(run *r, const node *n, int *jump);

/* ---- calls ---- */

/* The arguments of a call to a macro, function, filter, test or method. */
typedef struct arguments {
  slice name[PARAMETERS_MAX]; /* names of the parameters */
  value value[PARAMETERS_MAX];
  size_t count;
} arguments;

static size_t find_parameter(const arguments *to, slice name)
{
  size_t i = 0;
  while (i < to->count && !slice_same(to->name[i], name)) i++;
  return i;
}

/* Evaluates arguments and puts each at the place of its parameter. */
static brim_status place_arguments(run *r, const node *given, arguments *to)
{
  for (size_t i = 0; i < to->count; i++) to->value[i] = value_of(VALUE_ABSENT);
  size_t at = 0;
  for (const node *a = given; a; a = a->next, at++) {
    const bool named = a->kind == NODE_KEYWORD;
    const size_t place = named ? find_parameter(to, a->text) : at;
    r->at = a;
    if (place >= to->count && named) return run_fail(r, "there is no argument '%.*s'", SHOWN(a->text));
    if (place >= to->count) return run_fail(r, "at most %zu arguments are taken", to->count);
    if (to->value[place].kind != VALUE_ABSENT)
      return run_fail(r, "the argument '%.*s' is given twice", SHOWN(to->name[place]));
    BRIM_TRY(eval(r, named ? a->a : a, &to->value[place]));
  }
  return BRIM_OK;
}

/* Makes a dictionary of arguments with arbitrary names. */
static brim_status collect_arguments(run *r, const node *given, value *out)
{
  BRIM_TRY(value_dict(r, out));
  for (const node *a = given; a; a = a->next) {
    value v;
    r->at = a;
    if (a->kind != NODE_KEYWORD) return run_fail(r, "an argument without a name is not supported here");
    BRIM_TRY(eval(r, a->a, &v));
    BRIM_TRY(value_put(r, out->dict, value_text(a->text), v));
  }
  return BRIM_OK;
}

static brim_status call_builtin(run *r, const node *n, const builtin *b, const value *self, const node *given,
                                value *out)
{
  arguments to = {.count = 0};
  value named;
  if (!b->call) return run_fail(r, "the function '%s' is not supported", b->name);
  if (!b->parameters) {
    BRIM_TRY(collect_arguments(r, given, &named));
    return b->call(r, b, &named, NULL, out);
  }
  for (const char *p = b->parameters; *p; p = strchr(p, ' ') + 1)
    to.name[to.count++] = (slice){p, (size_t)(strchr(p, ' ') - p)};
  BRIM_TRY(place_arguments(r, given, &to));
  r->at = n;
  return library_call(r, b, self, to.value, to.count, out);
}

static brim_status call_macro(run *r, const macro *m, const node *given, value *out)
{
  scope *inner = NULL, *outer = r->scope;
  arguments to = {.count = 0};
  const size_t from = r->out.count;
  int jump = 0;
  for (const node *p = m->node->a; p; p = p->next) to.name[to.count++] = p->text;
  BRIM_TRY(place_arguments(r, given, &to));
  BRIM_TRY(open_scope(r, m->outer, &inner));
  r->scope = inner;
  const node *p = m->node->a;
  for (size_t i = 0; p; i++, p = p->next) BRIM_TRY(bind(r, inner, p->name, to.value[i]));
  p = m->node->a;
  for (size_t i = 0; p; i++, p = p->next) { /* the default value may use the other parameters */
    value v = value_undefined(p->text);
    if (to.value[i].kind != VALUE_ABSENT) continue;
    if (p->a) BRIM_TRY(eval(r, p->a, &v));
    BRIM_TRY(bind(r, inner, p->name, v));
  }
  BRIM_TRY(run_body(r, m->node->c, &jump));
  r->scope = outer;
  return value_take_output(r, from, out);
}

static brim_status eval_call(run *r, const node *n, value *out)
{
  value what;
  BRIM_TRY(eval(r, n->a, &what));
  r->at = n;
  if (what.kind == VALUE_MACRO) return call_macro(r, what.macro, n->b, out);
  if (what.kind == VALUE_FUNCTION) return call_builtin(r, n, what.function->builtin, &what.function->self, n->b, out);
  if (what.kind == VALUE_UNDEFINED) return run_fail(r, "'%.*s' is undefined and cannot be called", SHOWN(what.text));
  return run_fail(r, "'%s' cannot be called", value_type(&what));
}

static brim_status eval_builtin(run *r, const node *n, value *out)
{
  value self;
  BRIM_TRY(eval(r, n->a, &self));
  return call_builtin(r, n, n->builtin, &self, n->b, out);
}

/* ---- operators ---- */

static brim_status bad_operands(run *r, const value *a, const value *b, int op)
{
  const char text[3] = {(char)(op & 255), (char)(op >> 8), '\0'};
  const value *u = a->kind == VALUE_UNDEFINED ? a : b;
  if (u->kind == VALUE_UNDEFINED) return run_fail(r, "'%.*s' is undefined", SHOWN(u->text));
  return run_fail(r, "'%s' with '%s' and '%s' is not supported", text, value_type(a), value_type(b));
}

/* Computes quotients as Python does, which rounds them down. */
static brim_status whole_numbers(run *r, int64_t a, int64_t b, int op, value *out)
{
  int64_t result = 0;
  bool over = false;
  if (op == '+') {
    over = __builtin_add_overflow(a, b, &result);
  } else if (op == '-') {
    over = __builtin_sub_overflow(a, b, &result);
  } else if (op == '*') {
    over = __builtin_mul_overflow(a, b, &result);
  } else {
    if (b == 0) return run_fail(r, "division by zero");
    if (b == -1) return op == '%' ? whole_numbers(r, 0, 0, '+', out) : whole_numbers(r, 0, a, '-', out);
    const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
    result = op == '%' ? rest + down * b : a / b - down;
  }
  if (over) return run_fail(r, "the result needs more than 64 bits");
  *out = value_int(result);
  return BRIM_OK;
}

static brim_status numbers(run *r, const value *a, const value *b, int op, value *out)
{
  double x, y;
  const bool whole = a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT;
  if (whole && op != '/') return whole_numbers(r, a->integer, b->integer, op, out);
  if (op == '%' || op == OP2('/', '/')) return bad_operands(r, a, b, op);
  BRIM_TRY(value_as_real(r, a, &x));
  BRIM_TRY(value_as_real(r, b, &y));
  if (op == '/' && y == 0) return run_fail(r, "division by zero");
  *out = value_real(op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y);
  return BRIM_OK;
}

/* Joins texts. A text that grows stays where it is, if possible, so that building it takes linear time. */
static brim_status add_texts(run *r, slice a, slice b, value *out)
{
  char *to = (char *)(uintptr_t)a.text;
  if (b.bytes > TEMPLATE_MEMORY_MAX || a.bytes == 0 || !memory_extend(&r->memory, to, a.bytes, b.bytes)) {
    to = memory_take(&r->memory, a.bytes + b.bytes);
    if (!to) return run_no_memory(r);
    if (a.bytes) memcpy(to, a.text, a.bytes);
  }
  if (b.bytes) memcpy(to + a.bytes, b.text, b.bytes);
  *out = value_text((slice){to, a.bytes + b.bytes});
  return BRIM_OK;
}

static brim_status arithmetic(run *r, const value *a, const value *b, int op, value *out)
{
  if (op == '~') {
    value x, y;
    BRIM_TRY(value_to_string(r, a, &x));
    BRIM_TRY(value_to_string(r, b, &y));
    return add_texts(r, x.text, y.text, out);
  }
  if (value_is_number(a) && value_is_number(b)) return numbers(r, a, b, op, out);
  if (op != '+' || a->kind != b->kind) return bad_operands(r, a, b, op);
  if (value_is_list(a)) {
    BRIM_TRY(run_steps(r, a->sequence->count + b->sequence->count));
    BRIM_TRY(value_sequence(r, (enum value_kind)a->kind, out));
    for (size_t i = 0; i < a->sequence->count; i++) BRIM_TRY(value_push(r, out->sequence, a->sequence->item[i]));
    for (size_t i = 0; i < b->sequence->count; i++) BRIM_TRY(value_push(r, out->sequence, b->sequence->item[i]));
    return BRIM_OK;
  }
  if (a->kind != VALUE_STRING) return bad_operands(r, a, b, op);
  if (a->safe || b->safe) return run_fail(r, "'+' with a text of the filter safe is not supported: use '~'");
  return add_texts(r, a->text, b->text, out);
}

static brim_status compare(run *r, const value *a, const value *b, int op, value *out)
{
  bool holds = false;
  int order = 0;
  switch (op) {
  case OP_IN:
  case OP_NOT_IN:
    BRIM_TRY(value_contains(r, a, b, &holds));
    holds = holds == (op == OP_IN);
    break;
  case OP2('=', '='):
  case OP2('!', '='):
    BRIM_TRY(value_equal(r, a, b, &holds));
    holds = holds == (op == OP2('=', '='));
    break;
  default:
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED) return bad_operands(r, a, b, op);
    BRIM_TRY(value_order(r, a, b, &order));
    holds = (op & 255) == '<' ? order < 0 : order > 0;
    if (op >> 8 == '=') holds = holds || order == 0;
  }
  *out = value_bool(holds);
  return BRIM_OK;
}

static brim_status eval_binary(run *r, const node *n, value *out)
{
  value a, b;
  BRIM_TRY(eval(r, n->a, &a));
  if (n->op == OP_AND || n->op == OP_OR) {
    *out = a;
    return value_true(&a) == (n->op == OP_AND) ? eval(r, n->b, out) : BRIM_OK;
  }
  BRIM_TRY(eval(r, n->b, &b));
  r->at = n;
  const bool computes = n->op < 256 ? n->op != '<' && n->op != '>' : n->op == OP2('/', '/');
  return computes ? arithmetic(r, &a, &b, n->op, out) : compare(r, &a, &b, n->op, out);
}

static brim_status eval_sign(run *r, const node *n, value *out)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  r->at = n;
  if (v.kind == VALUE_FLOAT && n->op == '-') {
    *out = value_real(-v.real);
    return BRIM_OK;
  }
  const value zero = value_int(0);
  return arithmetic(r, &zero, &v, n->op, out);
}

/* ---- other expressions ---- */

static brim_status eval_const(UNUSED run *r, const node *n, value *out)
{
  *out = n->constant;
  return BRIM_OK;
}

static brim_status eval_name(run *r, const node *n, value *out)
{
  for (const scope *s = r->scope; s; s = s->parent) {
    const binding *b = find_in(s, n->name);
    if (!b || b->value.kind == VALUE_ABSENT) continue;
    *out = b->value;
    return BRIM_OK;
  }
  const builtin *f = library_function(n->text);
  *out = value_undefined(n->text);
  if (!f) return BRIM_OK;
  if (!f->call) return run_fail(r, "the function '%s' is not supported", f->name);
  bound *made = memory_take(&r->memory, sizeof *made);
  if (!made) return run_no_memory(r);
  *made = (bound){.builtin = f};
  *out = (value){.kind = VALUE_FUNCTION, .function = made};
  return BRIM_OK;
}

static brim_status eval_list(run *r, const node *n, value *out)
{
  BRIM_TRY(value_sequence(r, n->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, out));
  for (const node *e = n->a; e; e = e->next) {
    value v;
    BRIM_TRY(eval(r, e, &v));
    BRIM_TRY(value_push(r, out->sequence, v));
  }
  return BRIM_OK;
}

static brim_status eval_dict(run *r, const node *n, value *out)
{
  BRIM_TRY(value_dict(r, out));
  for (const node *e = n->a; e; e = e->next->next) {
    value key, v;
    BRIM_TRY(eval(r, e, &key));
    BRIM_TRY(eval(r, e->next, &v));
    r->at = e;
    BRIM_TRY(value_put(r, out->dict, key, v));
  }
  return BRIM_OK;
}

static brim_status eval_attribute(run *r, const node *n, value *out)
{
  value o;
  BRIM_TRY(eval(r, n->a, &o));
  r->at = n;
  return library_attribute(r, &o, n->text, out);
}

static brim_status eval_item(run *r, const node *n, value *out)
{
  value o, key[3];
  BRIM_TRY(eval(r, n->a, &o));
  const bool slices = n->b->kind == NODE_SLICE;
  const node *part[] = {slices ? n->b->a : n->b, slices ? n->b->b : NULL, slices ? n->b->c : NULL};
  for (int i = 0; i < 3; i++) {
    key[i] = value_of(VALUE_ABSENT);
    if (part[i]) BRIM_TRY(eval(r, part[i], &key[i]));
  }
  r->at = n;
  return slices ? value_slice_of(r, &o, key, out) : library_item(r, &o, key, out);
}

static brim_status eval_not(run *r, const node *n, value *out)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  *out = value_bool(!value_true(&v));
  return BRIM_OK;
}

static brim_status eval_condition(run *r, const node *n, value *out)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  if (value_true(&v)) return eval(r, n->b, out);
  *out = value_undefined((slice){"an if without else", 18});
  return n->c ? eval(r, n->c, out) : BRIM_OK;
}

static brim_status (*const evals[NODE_KINDS])(run *r, const node *n, value *out) = {
    [NODE_CONST] = eval_const, [NODE_NAME] = eval_name,           [NODE_LIST] = eval_list,
    [NODE_TUPLE] = eval_list,  [NODE_DICT] = eval_dict,           [NODE_ATTRIBUTE] = eval_attribute,
    [NODE_ITEM] = eval_item,   [NODE_CALL] = eval_call,           [NODE_BUILTIN] = eval_builtin,
    [NODE_NOT] = eval_not,     [NODE_CONDITION] = eval_condition, [NODE_BINARY] = eval_binary,
    [NODE_SIGN] = eval_sign};

static brim_status eval(run *r, const node *n, value *out)
{
  r->at = n;
  if (!evals[n->kind]) return run_fail(r, "an expression is needed");
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = evals[n->kind](r, n, out);
  run_leave(r);
  return status;
}

/* ---- statements ---- */

#define STATEMENT(name) brim_status name(UNUSED run *r, const node *n, UNUSED int *jump)

static brim_status assign(run *r, const node *target, const value *v)
{
  sequence *from = NULL;
  size_t at = 0;
  r->at = target;
  if (target->kind == NODE_NAME) return bind(r, r->scope, target->name, *v);
  if (target->kind == NODE_FIELD) {
    const node name = {.kind = NODE_NAME, .at = target->at, .name = target->name};
    value space;
    BRIM_TRY(eval_name(r, &name, &space));
    if (space.kind != VALUE_NAMESPACE) return run_fail(r, "this is not a namespace");
    if (r->in_filter) return run_fail(r, "a namespace in the filter of a loop is not supported");
    return value_put(r, space.dict, value_text(target->text), *v);
  }
  BRIM_TRY(value_elements(r, v, &from));
  for (const node *t = target->a; t; t = t->next, at++)
    if (at < from->count) BRIM_TRY(assign(r, t, &from->item[at]));
  r->at = target;
  return at == from->count ? BRIM_OK : run_fail(r, "%zu values for %zu names", from->count, at);
}

static STATEMENT(run_data)
{
  return print_bytes(r, n->text);
}

static STATEMENT(run_print)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  r->at = n->a;
  return print_text(r, &v);
}

static STATEMENT(run_if)
{
  for (;;) {
    value v;
    BRIM_TRY(eval(r, n->a, &v));
    if (value_true(&v)) return run_body(r, n->b, jump);
    if (!n->c || n->c->kind != NODE_IF || n->c->next) return run_body(r, n->c, jump);
    n = n->c;
  }
}

/* Keeps the elements that a loop's filter accepts. Jinja filters while the loop runs. The result is the same, because a
 * filter that uses a namespace is refused. */
static brim_status filter_elements(run *r, const node *n, const sequence *from, sequence **out)
{
  scope *outer = r->scope;
  const bool nested = r->in_filter;
  value kept, holds;
  BRIM_TRY(value_sequence(r, VALUE_LIST, &kept));
  *out = kept.sequence;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  r->in_filter = true;
  for (size_t i = 0; i < from->count; i++) {
    clear(r->scope);
    BRIM_TRY(assign(r, n->a, &from->item[i]));
    BRIM_TRY(eval(r, n->e, &holds));
    if (value_true(&holds)) BRIM_TRY(value_push(r, *out, from->item[i]));
  }
  r->in_filter = nested;
  r->scope = outer;
  return BRIM_OK;
}

/* Runs a loop. *complete: whether an iteration reached its end without break and continue, which decides about Jinja's
 * else. */
static brim_status run_loop(run *r, const node *n, loop *l, bool *complete)
{
  scope *outer = r->scope;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  for (; l->at < l->elements->count; l->at++) {
    int how = 0;
    clear(r->scope);
    if (r->t->loop >= 0) BRIM_TRY(bind(r, r->scope, r->t->loop, (value){.kind = VALUE_LOOP, .loop = l}));
    BRIM_TRY(assign(r, n->a, &l->elements->item[l->at]));
    BRIM_TRY(run_body(r, n->c, &how));
    if (how == NODE_BREAK) break;
    if (how == 0) *complete = true;
  }
  r->scope = outer;
  return BRIM_OK;
}

static STATEMENT(run_for)
{
  scope *outer = r->scope;
  value v;
  bool complete = false;
  BRIM_TRY(eval(r, n->b, &v));
  r->at = n->b;
  loop *l = memory_take(&r->memory, sizeof *l);
  if (!l) return run_no_memory(r);
  *l = (loop){.at = 0};
  BRIM_TRY(value_elements(r, &v, &l->elements));
  if (n->e) BRIM_TRY(filter_elements(r, n, l->elements, &l->elements));
  BRIM_TRY(run_loop(r, n, l, &complete));
  if (complete || !n->d) return BRIM_OK;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  BRIM_TRY(run_body(r, n->d, jump));
  r->scope = outer;
  return BRIM_OK;
}

static STATEMENT(run_set)
{
  value v;
  BRIM_TRY(eval(r, n->b, &v));
  return assign(r, n->a, &v);
}

/* Runs a body in its own scope. */
static brim_status run_inner(run *r, const node *n)
{
  scope *outer = r->scope;
  int jump = 0;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  BRIM_TRY(run_body(r, n->c, &jump));
  r->scope = outer;
  return BRIM_OK;
}

static STATEMENT(run_set_block)
{
  const size_t from = r->out.count;
  value v;
  BRIM_TRY(run_inner(r, n));
  BRIM_TRY(value_take_output(r, from, &v));
  return assign(r, n->a, &v);
}

static STATEMENT(run_macro)
{
  macro *m = memory_take(&r->memory, sizeof *m);
  if (!m) return run_no_memory(r);
  *m = (macro){n, r->scope};
  return bind(r, r->scope, n->name, (value){.kind = VALUE_MACRO, .macro = m});
}

static STATEMENT(run_generation)
{
  template_output *o = r->output;
  const size_t begin = r->out.count;
  BRIM_TRY(run_inner(r, n));
  if (o->span_count == r->span_room) {
    const size_t room = r->span_room ? 2 * r->span_room : 16;
    template_span *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(o->span, room * sizeof *grown);
    if (!grown) return run_no_memory(r);
    o->span = grown;
    r->span_room = room;
  }
  o->span[o->span_count++] = (template_span){begin, r->out.count};
  return BRIM_OK;
}

static STATEMENT(run_jump)
{
  *jump = n->kind;
  return BRIM_OK;
}

static brim_status (*const statements[NODE_KINDS])(run *r, const node *n, int *jump) = {
    [NODE_DATA] = run_data,   [NODE_PRINT] = run_print,
    [NODE_IF] = run_if,       [NODE_FOR] = run_for,
    [NODE_SET] = run_set,     [NODE_SET_BLOCK] = run_set_block,
    [NODE_MACRO] = run_macro, [NODE_GENERATION] = run_generation,
    [NODE_BREAK] = run_jump,  [NODE_CONTINUE] = run_jump};

/* Runs a body. *jump becomes NODE_BREAK or NODE_CONTINUE if the body ends with one of them; otherwise it does not
 * change. */
static brim_status run_body(run *r, const node *n, int *jump)
{
  BRIM_TRY(run_enter(r));
  brim_status status = BRIM_OK;
  for (; n && status == BRIM_OK && *jump == 0; n = n->next) {
    r->at = n;
    status = run_steps(r, 1);
    if (status == BRIM_OK) status = statements[n->kind](r, n, jump);
  }
  run_leave(r);
  return status;
}

/* ---- the whole ---- */

static brim_status render(run *r, const json_t *context)
{
  scope *globals = NULL;
  int jump = 0;
  BRIM_TRY(open_scope(r, NULL, &globals));
  r->scope = globals;
  for (int32_t i = 0; i < r->t->name_count; i++) {
    const slice name = r->t->name[i];
    value v;
    char key[128];
    if (name.bytes >= sizeof key) continue;
    memcpy(key, name.text, name.bytes);
    key[name.bytes] = '\0';
    const json_t *json = json_object_get(context, key);
    if (!json) continue;
    BRIM_TRY(value_json(r, json, &v));
    BRIM_TRY(bind(r, r->scope, i, v));
  }
  BRIM_TRY(open_scope(r, globals, &r->scope));
  BRIM_TRY(run_body(r, r->t->body, &jump));
  return buffer_add(&r->out, "", 1);
}

brim_status template_render(const template *t, const json_t *context, int64_t clock, template_output *out)
{
  *out = (template_output){0};
  run r = {.t = t, .memory.most = TEMPLATE_MEMORY_MAX, .clock = clock, .output = out};
  const brim_status status = render(&r, context);
  memory_free(&r.memory);
  if (status == BRIM_OK) {
    out->text = r.out.data;
    out->bytes = r.out.count - 1;
  } else {
    free(r.out.data);
    template_output_free(out);
  }
  return status;
}

void template_output_free(template_output *out)
{
  free(out->text);
  free(out->span);
  *out = (template_output){0};
}
