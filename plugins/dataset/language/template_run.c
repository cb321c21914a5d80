/* Runs a template: statements write to the output, expressions make values, as Jinja2 does it. See template.h. */
#include <math.h>
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

/* A name whose value is VALUE_ABSENT is not in the scope. */
static binding *find_place(const scope *s, int32_t name)
{
  for (binding *b = s->first; b; b = b->next)
    if (b->name == name) return b;
  return NULL;
}

static const binding *find_in(const scope *s, int32_t name)
{
  const binding *b = find_place(s, name);
  return b && b->value.kind != VALUE_ABSENT ? b : NULL;
}

/* Empties a scope, whose memory is used again. */
static void clear(scope *s)
{
  for (binding *b = s->first; b; b = b->next) b->value = value_of(VALUE_ABSENT);
}

static brim_status bind(run *r, scope *s, int32_t name, value v)
{
  binding *b = find_place(s, name);
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

static value undefined(slice name)
{
  return (value){.kind = VALUE_UNDEFINED, .text = name};
}

static brim_status eval(run *r, const node *n, value *out);
static brim_status run_body(run *r, const node *n, int *jump);

/* ---- calls ---- */

/* Evaluates arguments into the places of a builtin's parameters. */
static brim_status place_arguments(run *r, const node *n, const builtin *b, const node *arguments, value *out)
{
  size_t count = 0;
  for (size_t i = 0; i < PARAMETERS_MAX; i++) out[i] = value_of(VALUE_ABSENT);
  for (const char *p = b->parameters; *p; p = strchr(p, ' ') + 1) count++;
  size_t at = 0;
  for (const node *a = arguments; a; a = a->next, at++) {
    size_t place = at;
    if (a->kind == NODE_KEYWORD) {
      const char *p = b->parameters;
      for (place = 0; place < count; place++, p = strchr(p, ' ') + 1)
        if (strncmp(p, a->text.text, a->text.bytes) == 0 && p[a->text.bytes] == ' ') break;
    }
    r->at = a;
    if (place >= count)
      return a->kind == NODE_KEYWORD
                 ? run_fail(r, "%s has no argument '%.*s'", b->name, (int)a->text.bytes, a->text.text)
                 : run_fail(r, "%s takes at most %zu arguments", b->name, count);
    if (out[place].kind != VALUE_ABSENT) return run_fail(r, "%s has this argument twice", b->name);
    BRIM_TRY(eval(r, a->kind == NODE_KEYWORD ? a->a : a, &out[place]));
  }
  r->at = n;
  for (int32_t i = 0; i < b->least; i++)
    if (out[i].kind == VALUE_ABSENT) return run_fail(r, "%s needs %d arguments", b->name, (int)b->least);
  return BRIM_OK;
}

static brim_status call_builtin(run *r, const node *n, const builtin *b, const value *self, const node *arguments,
                                value *out)
{
  value argument[PARAMETERS_MAX];
  if (!b->call) return run_fail(r, "the method '%s' is not supported", b->name);
  BRIM_TRY(place_arguments(r, n, b, arguments, argument));
  return b->call(r, self, argument, out);
}

/* Binds the arguments of a call to a macro's parameters. */
static brim_status bind_arguments(run *r, const node *m, const node *arguments, scope *to)
{
  scope *caller = r->scope;
  const node *p = m->a, *a = arguments;
  for (; a && a->kind != NODE_KEYWORD; a = a->next, p = p->next) {
    value v;
    r->at = a;
    if (!p) return run_fail(r, "the macro takes fewer arguments");
    BRIM_TRY(eval(r, a, &v));
    BRIM_TRY(bind(r, to, p->name, v));
  }
  for (; a; a = a->next) {
    value v;
    const node *q = m->a;
    while (q && !(q->text.bytes == a->text.bytes && memcmp(q->text.text, a->text.text, q->text.bytes) == 0))
      q = q->next;
    r->at = a;
    if (!q) return run_fail(r, "the macro has no argument '%.*s'", (int)a->text.bytes, a->text.text);
    if (find_in(to, q->name))
      return run_fail(r, "the macro has the argument '%.*s' twice", (int)a->text.bytes, a->text.text);
    BRIM_TRY(eval(r, a->a, &v));
    BRIM_TRY(bind(r, to, q->name, v));
  }
  r->scope = to;
  for (p = m->a; p; p = p->next) {
    value v = undefined(p->text);
    if (find_in(to, p->name)) continue;
    if (p->a) BRIM_TRY(eval(r, p->a, &v));
    BRIM_TRY(bind(r, to, p->name, v));
  }
  r->scope = caller;
  return BRIM_OK;
}

/* `caller`: the macro of a call block, or NULL. */
static brim_status call_macro(run *r, const macro *m, const node *arguments, const value *caller, value *out)
{
  scope *inner = NULL, *outer = r->scope;
  const size_t from = r->out.count;
  int jump = 0;
  if (caller && !m->node->flag) return run_fail(r, "the macro does not use caller");
  BRIM_TRY(open_scope(r, m->outer, &inner));
  BRIM_TRY(bind_arguments(r, m->node, arguments, inner));
  if (m->node->flag) BRIM_TRY(bind(r, inner, r->t->caller, caller ? *caller : undefined((slice){"caller", 6})));
  r->scope = inner;
  const brim_status status = run_body(r, m->node->c, &jump);
  r->scope = outer;
  BRIM_TRY(status);
  return value_take_output(r, from, out);
}

static brim_status call(run *r, const node *n, const value *caller, value *out)
{
  value what;
  BRIM_TRY(eval(r, n->a, &what));
  r->at = n;
  if (what.kind == VALUE_MACRO) return call_macro(r, what.macro, n->b, caller, out);
  if (caller) return run_fail(r, "{%% call %%} needs a macro, not '%s'", value_type(&what));
  if (what.kind == VALUE_METHOD) return call_builtin(r, n, what.method->builtin, &what.method->self, n->b, out);
  if (what.kind == VALUE_UNDEFINED)
    return run_fail(r, "'%.*s' is undefined and cannot be called", (int)what.text.bytes, what.text.text);
  if (what.kind != VALUE_FUNCTION) return run_fail(r, "'%s' cannot be called", value_type(&what));
  if (strcmp(what.function->name, "namespace") != 0 && strcmp(what.function->name, "dict") != 0)
    return call_builtin(r, n, what.function, &what, n->b, out);
  BRIM_TRY(value_dict(r, 4, out)); /* their arguments may have any name */
  if (what.function->name[0] == 'n') out->kind = VALUE_NAMESPACE;
  for (const node *a = n->b; a; a = a->next) {
    value v;
    BRIM_TRY(eval(r, a->kind == NODE_KEYWORD ? a->a : a, &v));
    r->at = a;
    if (a->kind == NODE_KEYWORD) {
      BRIM_TRY(value_put(r, out->dict, value_slice(a->text.text, a->text.bytes), v));
      continue;
    }
    if (v.kind != VALUE_DICT || a != n->b) return run_fail(r, "%s takes one dictionary or names", what.function->name);
    for (size_t i = 0; i < v.dict->count; i++)
      BRIM_TRY(value_put(r, out->dict, v.dict->pair[i].key, v.dict->pair[i].value));
  }
  return BRIM_OK;
}

brim_status run_filter(run *r, const value *self, const value *arguments, size_t count, value *out)
{
  if (arguments[0].kind != VALUE_STRING) return run_fail(r, "the name of a filter is needed");
  const builtin *b = library_filter(arguments[0].text);
  value argument[PARAMETERS_MAX];
  size_t room = 0;
  if (!b)
    return run_fail(r, "the filter '%.*s' is not supported", (int)arguments[0].text.bytes, arguments[0].text.text);
  for (const char *p = b->parameters; *p; p = strchr(p, ' ') + 1) room++;
  for (size_t i = 0; i < PARAMETERS_MAX; i++) argument[i] = i + 1 < count ? arguments[i + 1] : value_of(VALUE_ABSENT);
  for (size_t i = 0; i < PARAMETERS_MAX; i++)
    if ((argument[i].kind != VALUE_ABSENT && i >= room) || (argument[i].kind == VALUE_ABSENT && (int32_t)i < b->least))
      return run_fail(r, "%s takes %d to %zu arguments", b->name, (int)b->least, room);
  return b->call(r, self, argument, out);
}

/* ---- arithmetic ---- */

static brim_status bad_operands(run *r, const value *a, const value *b, int op)
{
  const char text[3] = {(char)(op & 255), (char)(op >> 8), '\0'};
  const value *u = a->kind == VALUE_UNDEFINED ? a : b;
  if (u->kind == VALUE_UNDEFINED) return run_fail(r, "'%.*s' is undefined", (int)u->text.bytes, u->text.text);
  return run_fail(r, "'%s' cannot be used with '%s' and '%s'", text, value_type(a), value_type(b));
}

static brim_status whole_numbers(run *r, int64_t a, int64_t b, int op, value *out)
{
  int64_t result = 0;
  bool over = false;
  switch (op) {
  case '+':
    over = __builtin_add_overflow(a, b, &result);
    break;
  case '-':
    over = __builtin_sub_overflow(a, b, &result);
    break;
  case '*':
    over = __builtin_mul_overflow(a, b, &result);
    break;
  case OP2('*', '*'):
    result = 1;
    for (int64_t i = 0; i < b && !over && (a > 1 || a < -1 || i < 2 - (b & 1)); i++)
      over = __builtin_mul_overflow(result, a, &result);
    break;
  default:
    if (b == 0) return run_fail(r, "division by zero");
    over = a == INT64_MIN && b == -1;
    if (over) break;
    result = a % b;
    if (op == '%' && result != 0 && (result < 0) != (b < 0)) result += b;
    if (op != '%') result = a / b - (result != 0 && (result < 0) != (b < 0));
  }
  if (over) return run_fail(r, "the result needs more than 64 bits");
  *out = value_int(result);
  return BRIM_OK;
}

static brim_status reals(run *r, double a, double b, int op, value *out)
{
  double result = 0;
  if (b == 0 && (op == '/' || op == '%' || op == OP2('/', '/'))) return run_fail(r, "division by zero");
  if (op == '+') result = a + b;
  if (op == '-') result = a - b;
  if (op == '*') result = a * b;
  if (op == '/') result = a / b;
  if (op == OP2('*', '*')) {
    if ((a == 0 && b < 0) || (a < 0 && b != floor(b))) return run_fail(r, "this power is not a real number");
    result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b)) return run_fail(r, "this power is too large");
  }
  if (op == '%' || op == OP2('/', '/')) { /* as CPython's float_floor_div */
    double rest = fmod(a, b), times = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) {
      rest += b;
      times -= 1;
    } else if (rest == 0) {
      rest = copysign(0, b);
    }
    const double whole = times != 0 ? floor(times) + (times - floor(times) > 0.5) : copysign(0, a / b);
    result = op == '%' ? rest : whole;
  }
  *out = value_real(result);
  return BRIM_OK;
}

#define EXACT_MAX ((int64_t)1 << 53)
static bool is_exact(const value *v)
{
  return v->kind == VALUE_FLOAT || (v->integer >= -EXACT_MAX && v->integer <= EXACT_MAX);
}

static brim_status numbers(run *r, const value *a, const value *b, int op, value *out)
{
  double x, y;
  value_number(a, &x);
  value_number(b, &y);
  const bool whole = a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT;
  if (whole && op != '/' && !(op == OP2('*', '*') && b->integer < 0))
    return whole_numbers(r, a->integer, b->integer, op, out);
  if (!is_exact(a) || !is_exact(b))
    return run_fail(r, "integers beyond 2^53 with floating-point numbers are not supported");
  return reals(r, x, y, op, out);
}

static brim_status add_texts(run *r, const value *a, const value *b, value *out)
{
  if (a->safe != b->safe)
    return run_fail(r, "'+' with a text of the filter safe and another is not supported: use '~'");
  if (b->text.bytes <= TEMPLATE_MEMORY_MAX && a->text.bytes > 0 &&
      memory_extend(&r->memory, a->text.text, a->text.bytes, b->text.bytes)) {
    memcpy((char *)(uintptr_t)a->text.text + a->text.bytes, b->text.text, b->text.bytes);
    *out = value_slice(a->text.text, a->text.bytes + b->text.bytes);
  } else {
    char *to = memory_take(&r->memory, a->text.bytes + b->text.bytes);
    if (!to) return run_no_memory(r);
    if (a->text.bytes) memcpy(to, a->text.text, a->text.bytes);
    if (b->text.bytes) memcpy(to + a->text.bytes, b->text.text, b->text.bytes);
    *out = value_slice(to, a->text.bytes + b->text.bytes);
  }
  out->safe = a->safe;
  return BRIM_OK;
}

static brim_status add_sequences(run *r, const sequence *a, const sequence *b, value *out)
{
  BRIM_TRY(run_steps(r, a->count + b->count));
  BRIM_TRY(value_sequence(r, a->kind, a->count + b->count, out));
  for (size_t i = 0; i < a->count; i++) BRIM_TRY(value_push(r, out->sequence, a->item[i]));
  for (size_t i = 0; i < b->count; i++) BRIM_TRY(value_push(r, out->sequence, b->item[i]));
  return BRIM_OK;
}

static brim_status repeat(run *r, const value *v, int64_t times, value *out)
{
  if (times < 0) times = 0;
  if (v->kind == VALUE_STRING) {
    const size_t from = r->out.count;
    if (v->text.bytes == 0) times = 0;
    BRIM_TRY(run_steps(r, times > TEMPLATE_STEPS_MAX ? TEMPLATE_STEPS_MAX + 1 : (size_t)times));
    for (int64_t i = 0; i < times; i++) BRIM_TRY(print_bytes(r, v->text.text, v->text.bytes));
    BRIM_TRY(value_take_output(r, from, out));
    out->safe = v->safe;
    return BRIM_OK;
  }
  BRIM_TRY(value_sequence(r, v->sequence->kind, 0, out));
  if (v->sequence->count == 0) times = 0;
  for (int64_t i = 0; i < times; i++) {
    BRIM_TRY(run_steps(r, v->sequence->count));
    for (size_t k = 0; k < v->sequence->count; k++) BRIM_TRY(value_push(r, out->sequence, v->sequence->item[k]));
  }
  return BRIM_OK;
}

static bool can_repeat(const value *v, const value *times)
{
  return (v->kind == VALUE_STRING || (v->kind == VALUE_SEQUENCE && v->sequence->kind <= SEQUENCE_TUPLE)) &&
         (times->kind == VALUE_INT || times->kind == VALUE_BOOL);
}

static brim_status binary(run *r, const value *a, const value *b, int op, value *out)
{
  double x, y;
  if (value_number(a, &x) && value_number(b, &y)) return numbers(r, a, b, op, out);
  if (op == '+' && a->kind == VALUE_STRING && b->kind == VALUE_STRING) return add_texts(r, a, b, out);
  if (op == '+' && a->kind == VALUE_SEQUENCE && b->kind == VALUE_SEQUENCE && a->sequence->kind == b->sequence->kind &&
      a->sequence->kind <= SEQUENCE_TUPLE)
    return add_sequences(r, a->sequence, b->sequence, out);
  if (op == '*' && can_repeat(a, b)) return repeat(r, a, b->integer, out);
  if (op == '*' && can_repeat(b, a)) return repeat(r, b, a->integer, out);
  if (op == '%' && a->kind == VALUE_STRING) return run_fail(r, "formatting texts with %% is not supported");
  return bad_operands(r, a, b, op);
}

/* ---- expressions ---- */

static brim_status eval_const(run *r, const node *n, value *out)
{
  (void)r;
  *out = n->constant;
  return BRIM_OK;
}

static brim_status eval_name(run *r, const node *n, value *out)
{
  for (const scope *s = r->scope; s; s = s->parent) {
    const binding *b = find_in(s, n->name);
    if (!b) continue;
    *out = b->value;
    return BRIM_OK;
  }
  const builtin *f = library_function(n->text);
  *out = f ? (value){.kind = VALUE_FUNCTION, .function = f} : undefined(n->text);
  if (f && !f->call) return run_fail(r, "the function '%s' is not supported", f->name);
  return BRIM_OK;
}

static brim_status eval_list(run *r, const node *n, value *out)
{
  BRIM_TRY(value_sequence(r, n->kind == NODE_LIST ? SEQUENCE_LIST : SEQUENCE_TUPLE, 0, out));
  for (const node *e = n->a; e; e = e->next) {
    value v;
    BRIM_TRY(eval(r, e, &v));
    BRIM_TRY(value_push(r, out->sequence, v));
  }
  return BRIM_OK;
}

static brim_status eval_dict(run *r, const node *n, value *out)
{
  BRIM_TRY(value_dict(r, 0, out));
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
  value o, limit[3];
  BRIM_TRY(eval(r, n->a, &o));
  if (n->b->kind != NODE_SLICE) {
    BRIM_TRY(eval(r, n->b, &limit[0]));
    r->at = n;
    return library_item(r, &o, &limit[0], out);
  }
  const node *part[] = {n->b->a, n->b->b, n->b->c};
  for (int i = 0; i < 3; i++) {
    limit[i] = value_of(VALUE_ABSENT);
    if (part[i]) BRIM_TRY(eval(r, part[i], &limit[i]));
  }
  r->at = n;
  return value_slice_of(r, &o, limit, out);
}

static brim_status eval_call(run *r, const node *n, value *out)
{
  return call(r, n, NULL, out);
}

static brim_status eval_builtin(run *r, const node *n, value *out)
{
  value self = r->block;
  if (n->a) BRIM_TRY(eval(r, n->a, &self));
  return call_builtin(r, n, n->builtin, &self, n->b, out);
}

static brim_status eval_not(run *r, const node *n, value *out)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  *out = value_bool(!value_true(&v));
  return BRIM_OK;
}

static brim_status eval_logic(run *r, const node *n, value *out)
{
  BRIM_TRY(eval(r, n->a, out));
  return value_true(out) == (n->kind == NODE_AND) ? eval(r, n->b, out) : BRIM_OK;
}

static brim_status eval_condition(run *r, const node *n, value *out)
{
  value v;
  BRIM_TRY(eval(r, n->a, &v));
  if (value_true(&v)) return eval(r, n->b, out);
  *out = undefined((slice){"an if without else", 18});
  return n->c ? eval(r, n->c, out) : BRIM_OK;
}

static brim_status compare(run *r, const value *a, const value *b, int op, bool *out)
{
  if (op == OP_IN || op == OP_NOT_IN) {
    BRIM_TRY(value_contains(r, a, b, out));
    *out = *out == (op == OP_IN);
    return BRIM_OK;
  }
  if (op != OP2('=', '=') && op != OP2('!', '=')) {
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED) return bad_operands(r, a, b, op);
    return value_less(r, a, b, op, out);
  }
  BRIM_TRY(value_equal(r, a, b, out));
  *out = *out == (op == OP2('=', '='));
  return BRIM_OK;
}

static brim_status eval_compare(run *r, const node *n, value *out)
{
  value left, right;
  bool holds = true;
  BRIM_TRY(eval(r, n->a, &left));
  for (const node *o = n->b; o && holds; o = o->next, left = right) {
    BRIM_TRY(eval(r, o->a, &right));
    r->at = o;
    BRIM_TRY(compare(r, &left, &right, o->op, &holds));
  }
  *out = value_bool(holds);
  return BRIM_OK;
}

static brim_status eval_binary(run *r, const node *n, value *out)
{
  value a, b;
  BRIM_TRY(eval(r, n->a, &a));
  BRIM_TRY(eval(r, n->b, &b));
  r->at = n;
  return binary(r, &a, &b, n->op, out);
}

static brim_status eval_concat(run *r, const node *n, value *out)
{
  value sum = value_slice("", 0), part;
  for (const node *e = n->a; e; e = e->next) {
    BRIM_TRY(eval(r, e, &part));
    r->at = e;
    BRIM_TRY(value_to_string(r, &part, &part));
    part.safe = false;
    BRIM_TRY(add_texts(r, &sum, &part, &sum));
  }
  *out = sum;
  return BRIM_OK;
}

static brim_status eval_sign(run *r, const node *n, value *out)
{
  double d;
  BRIM_TRY(eval(r, n->a, out));
  r->at = n;
  if (!value_number(out, &d)) return bad_operands(r, out, out, n->op);
  if (out->kind == VALUE_FLOAT)
    *out = value_real(n->op == '-' ? -d : d);
  else if (n->op == '-' && out->integer == INT64_MIN)
    return run_fail(r, "the result needs more than 64 bits");
  else
    *out = value_int(n->op == '-' ? -out->integer : out->integer);
  return BRIM_OK;
}

static brim_status (*const evals[NODE_KINDS])(run *r, const node *n, value *out) = {
    [NODE_CONST] = eval_const,    [NODE_NAME] = eval_name,
    [NODE_LIST] = eval_list,      [NODE_TUPLE] = eval_list,
    [NODE_DICT] = eval_dict,      [NODE_ATTRIBUTE] = eval_attribute,
    [NODE_ITEM] = eval_item,      [NODE_CALL] = eval_call,
    [NODE_FILTER] = eval_builtin, [NODE_TEST] = eval_builtin,
    [NODE_NOT] = eval_not,        [NODE_AND] = eval_logic,
    [NODE_OR] = eval_logic,       [NODE_COMPARE] = eval_compare,
    [NODE_BINARY] = eval_binary,  [NODE_CONDITION] = eval_condition,
    [NODE_CONCAT] = eval_concat,  [NODE_SIGN] = eval_sign};

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

static brim_status assign(run *r, const node *target, const value *v)
{
  sequence *from = NULL;
  size_t at = 0;
  r->at = target;
  if (target->kind == NODE_NAME) return bind(r, r->scope, target->name, *v);
  if (target->kind == NODE_FIELD) {
    const node name = {.kind = NODE_NAME, .at = target->at, .name = target->name, .text = {"", 0}};
    value space;
    BRIM_TRY(eval_name(r, &name, &space));
    if (space.kind != VALUE_NAMESPACE) return run_fail(r, "this is not a namespace");
    return value_put(r, space.dict, value_slice(target->text.text, target->text.bytes), *v);
  }
  BRIM_TRY(value_elements(r, v, &from));
  for (const node *t = target->a; t; t = t->next, at++) {
    r->at = target;
    if (at == from->count) return run_fail(r, "%zu values are too few for these names", from->count);
    BRIM_TRY(assign(r, t, &from->item[at]));
  }
  return at == from->count ? BRIM_OK : run_fail(r, "%zu values are too many for these names", from->count);
}

static brim_status run_data(run *r, const node *n, int *jump)
{
  (void)jump;
  return print_bytes(r, n->text.text, n->text.bytes);
}

static brim_status run_print(run *r, const node *n, int *jump)
{
  value v;
  (void)jump;
  BRIM_TRY(eval(r, n->a, &v));
  r->at = n->a;
  return print_text(r, &v);
}

static brim_status run_if(run *r, const node *n, int *jump)
{
  for (;;) {
    value v;
    BRIM_TRY(eval(r, n->a, &v));
    if (value_true(&v)) return run_body(r, n->b, jump);
    if (!n->c || n->c->kind != NODE_IF || n->c->next) return run_body(r, n->c, jump);
    n = n->c;
  }
}

/* Makes `count` elements pass the loop's filter, or as many as there are. */
brim_status loop_fill(run *r, loop *l, size_t count)
{
  const node *at = r->at;
  while (l->passed->count < count && l->taken < l->from->count) {
    value item = l->from->item[l->taken++], holds = value_bool(true);
    if (l->node->e) {
      scope *outer = r->scope;
      r->scope = l->scope;
      clear(l->scope);
      brim_status status = assign(r, l->node->a, &item);
      if (status == BRIM_OK) status = eval(r, l->node->e, &holds);
      r->scope = outer;
      BRIM_TRY(status);
    }
    if (value_true(&holds)) BRIM_TRY(value_push(r, l->passed, item));
  }
  r->at = at;
  return BRIM_OK;
}

/* *complete: whether an iteration came to its end without break and continue; Jinja's else asks for that. */
static brim_status run_loop(run *r, const node *n, loop *l, bool *complete)
{
  scope *outer = r->scope, *inner = NULL;
  BRIM_TRY(open_scope(r, outer, &inner));
  for (;; l->at++) {
    r->scope = outer;
    BRIM_TRY(loop_fill(r, l, l->at + 1));
    if (l->at >= l->passed->count) break;
    r->scope = inner;
    clear(inner);
    if (r->t->loop >= 0) BRIM_TRY(bind(r, inner, r->t->loop, (value){.kind = VALUE_LOOP, .loop = l}));
    BRIM_TRY(assign(r, n->a, &l->passed->item[l->at]));
    int how = 0;
    BRIM_TRY(run_body(r, n->c, &how));
    if (how == NODE_BREAK) break;
    if (how == 0) *complete = true;
  }
  return BRIM_OK;
}

static brim_status run_for(run *r, const node *n, int *jump)
{
  scope *outer = r->scope;
  value v;
  BRIM_TRY(eval(r, n->b, &v));
  r->at = n->b;
  loop *l = memory_take(&r->memory, sizeof *l);
  if (!l) return run_no_memory(r);
  *l = (loop){.node = n};
  BRIM_TRY(value_elements(r, &v, &l->from));
  BRIM_TRY(open_scope(r, outer, &l->scope));
  l->passed = l->from;
  l->taken = l->from->count;
  if (n->e) {
    BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, &v));
    l->passed = v.sequence;
    l->taken = 0;
  }
  bool complete = false;
  BRIM_TRY(run_loop(r, n, l, &complete));
  if (!complete && n->d) {
    BRIM_TRY(open_scope(r, outer, &r->scope));
    BRIM_TRY(run_body(r, n->d, jump));
  }
  r->scope = outer;
  return BRIM_OK;
}

static brim_status run_set(run *r, const node *n, int *jump)
{
  value v;
  (void)jump;
  BRIM_TRY(eval(r, n->b, &v));
  return assign(r, n->a, &v);
}

/* Runs a body in a scope of its own; *out is its text, after the filters of the block. */
static brim_status run_apart(run *r, const node *n, value *out)
{
  scope *outer = r->scope;
  const size_t from = r->out.count;
  int jump = 0;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  BRIM_TRY(run_body(r, n->c, &jump));
  BRIM_TRY(value_take_output(r, from, out));
  if (n->b) {
    const value block = r->block;
    r->block = *out;
    BRIM_TRY(eval(r, n->b, out));
    r->block = block;
  }
  r->scope = outer;
  return BRIM_OK;
}

static brim_status run_set_block(run *r, const node *n, int *jump)
{
  value v;
  (void)jump;
  BRIM_TRY(run_apart(r, n, &v));
  return assign(r, n->a, &v);
}

static brim_status run_filter_block(run *r, const node *n, int *jump)
{
  value v;
  (void)jump;
  BRIM_TRY(run_apart(r, n, &v));
  return print_text(r, &v);
}

static brim_status make_macro(run *r, const node *n, value *out)
{
  macro *m = memory_take(&r->memory, sizeof *m);
  if (!m) return run_no_memory(r);
  *m = (macro){n, r->scope};
  *out = (value){.kind = VALUE_MACRO, .macro = m};
  return BRIM_OK;
}

static brim_status run_macro(run *r, const node *n, int *jump)
{
  value v;
  (void)jump;
  BRIM_TRY(make_macro(r, n, &v));
  return bind(r, r->scope, n->name, v);
}

static brim_status run_call_block(run *r, const node *n, int *jump)
{
  value caller, v;
  (void)jump;
  BRIM_TRY(make_macro(r, n, &caller));
  r->at = n->b;
  BRIM_TRY(call(r, n->b, &caller, &v));
  return print_text(r, &v);
}

static brim_status run_generation(run *r, const node *n, int *jump)
{
  scope *outer = r->scope;
  template_output *o = r->output;
  const size_t begin = r->out.count;
  (void)jump;
  int none = 0;
  BRIM_TRY(open_scope(r, outer, &r->scope));
  BRIM_TRY(run_body(r, n->c, &none));
  r->scope = outer;
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

static brim_status run_jump(run *r, const node *n, int *jump)
{
  (void)r;
  *jump = n->kind;
  return BRIM_OK;
}

static brim_status (*const statements[NODE_KINDS])(run *r, const node *n,
                                                   int *jump) = {[NODE_DATA] = run_data,
                                                                 [NODE_PRINT] = run_print,
                                                                 [NODE_IF] = run_if,
                                                                 [NODE_FOR] = run_for,
                                                                 [NODE_SET] = run_set,
                                                                 [NODE_SET_BLOCK] = run_set_block,
                                                                 [NODE_MACRO] = run_macro,
                                                                 [NODE_CALL_BLOCK] = run_call_block,
                                                                 [NODE_FILTER_BLOCK] = run_filter_block,
                                                                 [NODE_GENERATION] = run_generation,
                                                                 [NODE_BREAK] = run_jump,
                                                                 [NODE_CONTINUE] = run_jump};

/* *jump: NODE_BREAK or NODE_CONTINUE if the body ends so, else unchanged. */
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

static brim_status bind_context(run *r, const json_t *context)
{
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
  return BRIM_OK;
}

static brim_status render(run *r, const json_t *context)
{
  scope *globals = NULL;
  int jump = 0;
  BRIM_TRY(open_scope(r, NULL, &globals));
  r->scope = globals;
  BRIM_TRY(bind_context(r, context));
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
