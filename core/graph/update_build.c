/* Updates with several operations, which an optimizer's build() makes: named values, with formulas and products on
 * them. */
#include <stdio.h>
#include <string.h>

#include "base/formula.h"
#include "graph/update.h"

#define VALUES_MAX 32
#define NAMES_MAX (VALUES_MAX + BRIM_FORMULA_NUMBERS_MAX)

typedef struct named {
  const char *name;
  brim_tensor *tensor;
  bool is_fixed; /* a sum: one value for all elements */
  bool is_read_only, is_scaled;
} named;

struct brim_update {
  brim_graph *g;
  const brim_update_form *form;
  const char *const *scalars;
  const char *parameter; /* name of the parameter */
  named value[VALUES_MAX];
  uint32_t values;
};

static named *find(brim_update *u, const char *what, const char *name)
{
  for (uint32_t i = 0; name && i < u->values; i++)
    if (strcmp(u->value[i].name, name) == 0) return &u->value[i];
  brim_graph_fail(u->g, "optimizer", u->parameter, "%s: there is no value named '%s'", what, name ? name : "(null)");
  return NULL;
}

static named *add(brim_update *u, const char *what, const char *name, brim_tensor *tensor)
{
  if (u->g->status != BRIM_OK || !tensor) return NULL;
  for (uint32_t i = 0; i < u->values; i++)
    if (!name || strcmp(u->value[i].name, name) == 0) {
      brim_graph_fail(u->g, "optimizer", u->parameter, "%s: the name '%s' is taken", what, name ? name : "(null)");
      return NULL;
    }
  if (u->values == VALUES_MAX) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "%s: there are more than %d values", what, VALUES_MAX);
    return NULL;
  }
  named *n = &u->value[u->values++];
  *n = (named){.name = brim_arena_string(&u->g->arena, name), .tensor = tensor};
  return n;
}

void brim_update_matrix(brim_update *u, const char *name, int64_t rows, int64_t columns)
{
  const brim_shape shape = {2, {rows, columns}};
  if (u->g->status != BRIM_OK) return;
  if (rows < 1 || columns < 1) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "brim_update_matrix: '%s' cannot have %lld rows and %lld columns",
                    name, (long long)rows, (long long)columns);
    return;
  }
  add(u, "brim_update_matrix", name,
      brim_graph_tensor(u->g, BRIM_ROLE_ACTIVATION, u->g->real, &shape, name ? name : ""));
}

/* ---- formulas ---- */

/* The inputs and outputs of a node: the values that its formula reads and writes. */
typedef struct operands {
  brim_tensor *in[BRIM_FORMULA_OPERANDS_MAX], *out[BRIM_FORMULA_OPERANDS_MAX];
  bool has_elements[BRIM_FORMULA_OPERANDS_MAX]; /* an input that is read elementwise */
  uint32_t inputs, outputs;
} operands;

static size_t list_names(const brim_update *u, brim_formula_name *list)
{
  size_t count = 0;
  for (uint32_t i = 0; i < u->values; i++) {
    const named *n = &u->value[i];
    list[count++] = (brim_formula_name){.name = n->name,
                                        .kind = n->is_fixed    ? BRIM_NAME_FIXED
                                                : n->is_scaled ? BRIM_NAME_FACTOR
                                                               : BRIM_NAME_ELEMENT,
                                        .index = (int32_t)i,
                                        .output = n->is_fixed || n->is_read_only ? -1 : (int32_t)i,
                                        .factor = VALUES_MAX,
                                        .is_optional = true};
  }
  return count + brim_formula_list_numbers(u->form, u->scalars, list + count);
}

/* Returns the index of a tensor in a list, after appending it if it is missing; -1 if there is no room. */
static int32_t place(brim_tensor **list, uint32_t *count, brim_tensor *t)
{
  for (uint32_t i = 0; i < *count; i++)
    if (list[i] == t) return (int32_t)i;
  if (*count == BRIM_FORMULA_OPERANDS_MAX) return -1;
  list[(*count)++] = t;
  return (int32_t)*count - 1;
}

/* Collects the values that the formula uses as the node's operands. */
static bool gather(const brim_update *u, brim_formula *f, operands *o)
{
  for (uint32_t i = 0; i < f->uniforms + f->lines; i++) {
    brim_formula_line *l = i < f->uniforms ? &f->uniform[i] : &f->line[i - f->uniforms];
    if (l->op != BRIM_FORMULA_LOAD && l->op != BRIM_FORMULA_STORE) continue;
    const bool is_store = l->op == BRIM_FORMULA_STORE;
    const uint32_t of = is_store ? l->to : l->a;
    brim_tensor *t = of == VALUES_MAX ? u->g->gradient_scale : u->value[of].tensor;
    const int32_t at = is_store ? place(o->out, &o->outputs, t) : place(o->in, &o->inputs, t);
    if (at < 0) return false;
    if (is_store) {
      l->to = (uint8_t)at;
    } else {
      l->a = (uint8_t)at;
      o->has_elements[at] = i >= f->uniforms;
    }
  }
  return true;
}

static bool is_of_one_size(const operands *o)
{
  const int64_t count = brim_shape_count(&o->out[0]->shape);
  for (uint32_t i = 0; i < o->inputs; i++)
    if (o->has_elements[i] && brim_shape_count(&o->in[i]->shape) != count && brim_shape_count(&o->in[i]->shape) != 1)
      return false;
  for (uint32_t k = 0; k < o->outputs; k++)
    if (brim_shape_count(&o->out[k]->shape) != count) return false;
  return true;
}

void brim_update_formula(brim_update *u, const char *formula)
{
  brim_formula_name list[NAMES_MAX];
  operands o = {.inputs = 0};
  if (u->g->status != BRIM_OK) return;
  brim_formula *f = BRIM_ARENA_NEW(&u->g->arena, brim_formula, 1);
  if (!formula) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "brim_update_formula: the formula is NULL");
  } else if (brim_formula_read(formula, list, list_names(u, list), f) != BRIM_OK) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "%s", brim_error_text());
  } else if (!gather(u, f, &o)) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "the formula '%s' uses more than %d values", formula,
                    BRIM_FORMULA_OPERANDS_MAX);
  } else if (o.outputs == 0) {
    brim_graph_fail(u->g, "optimizer", u->parameter, "the formula '%s' assigns to no declared value", formula);
  } else if (!is_of_one_size(&o)) {
    brim_graph_fail(u->g, "optimizer", u->parameter,
                    "the values of the formula '%s' differ in their number of elements", formula);
  } else {
    const brim_attr attr = {.formula = {f}};
    brim_graph_node_into(u->g, "formula", u->parameter, o.in, o.inputs, o.out, o.outputs, &attr);
  }
}

/* ---- products and sums ---- */

static bool is_product(const brim_shape *to, const brim_shape *a, const brim_shape *b, enum brim_product which)
{
  const int ta = which == BRIM_PRODUCT_A_TRANSPOSED, tb = which == BRIM_PRODUCT_B_TRANSPOSED;
  return to->rank == 2 && a->rank == 2 && b->rank == 2 && a->dim[!ta] == b->dim[tb] && to->dim[0] == a->dim[ta] &&
         to->dim[1] == b->dim[!tb];
}

/* Rejects g outside formulas, because only formulas multiply it by the factor that limits its norm. */
static bool refuse_gradient(const brim_update *u, const named *n)
{
  if (!n->is_read_only) return false;
  brim_graph_fail(u->g, "optimizer", u->parameter,
                  "the gradient g can be used only in formulas: copy it to a matrix with a formula first");
  return true;
}

/* The products are those of linear layers: y = x W^T, dx = dy W, dW = dy^T x. */
void brim_update_product(brim_update *u, const char *to, const char *a, const char *b, enum brim_product which)
{
  if (u->g->status != BRIM_OK) return;
  named *const n[] = {find(u, "brim_update_product", to), find(u, "brim_update_product", a),
                      find(u, "brim_update_product", b)};
  if (u->g->status != BRIM_OK) return;
  for (int i = 0; i < 3; i++)
    if (refuse_gradient(u, n[i])) return;
  brim_tensor *y = n[0]->tensor;
  if (y == n[1]->tensor || y == n[2]->tensor || y->role != BRIM_ROLE_ACTIVATION ||
      !is_product(&y->shape, &n[1]->tensor->shape, &n[2]->tensor->shape, which)) {
    char shape[3][64];
    for (int i = 0; i < 3; i++) brim_shape_format(shape[i], sizeof shape[i], &n[i]->tensor->shape);
    brim_graph_fail(u->g, "optimizer", u->parameter,
                    "brim_update_product: '%s' %s cannot be a product of '%s' %s and '%s' %s: the operands must be "
                    "matrices, and the result a third value",
                    to, shape[0], a, shape[1], b, shape[2]);
    return;
  }
  brim_tensor *const in[] = {n[1]->tensor, n[2]->tensor}, *const turned[] = {n[2]->tensor, n[1]->tensor};
  if (which == BRIM_PRODUCT_B_TRANSPOSED) {
    brim_graph_node_into(u->g, "linear", u->parameter, in, 2, &y, 1, NULL);
  } else if (which == BRIM_PRODUCT) {
    brim_graph_node_into(u->g, "linear_grad_input", u->parameter, in, 2, &y, 1, NULL);
  } else { /* adds to the value */
    brim_graph_node_into(u->g, "zero", u->parameter, NULL, 0, &y, 1, NULL);
    brim_graph_node_into(u->g, "linear_grad_weight", u->parameter, turned, 2, &y, 1, NULL);
  }
}

void brim_update_squares(brim_update *u, const char *name, const char *of)
{
  const brim_shape one = {1, {1}};
  if (u->g->status != BRIM_OK) return;
  named *x = find(u, "brim_update_squares", of);
  if (!x || refuse_gradient(u, x)) return;
  brim_tensor *sum = brim_graph_tensor(u->g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "squares");
  named *made = add(u, "brim_update_squares", name, sum);
  if (!made) return;
  made->is_fixed = true;
  brim_graph_node_into(u->g, "squared_norm", u->parameter, &x->tensor, 1, &sum, 1, NULL);
}

/* ---- the build ---- */

void brim_update_build(brim_graph *g, const brim_update_options *options, const brim_update_form *form,
                       const brim_tensor *parameter, brim_tensor *const *in)
{
  brim_update u = {.g = g, .form = form, .scalars = options->scalars, .parameter = parameter->name};
  add(&u, "optimizer", "p", in[0]);
  named *gradient = add(&u, "optimizer", "g", in[1]);
  for (uint32_t k = 0; k < form->state_count; k++) add(&u, "optimizer", form->state[k].name, in[2 + k]);
  if (!gradient || g->status != BRIM_OK) return;
  gradient->is_read_only = true;
  gradient->is_scaled = g->gradient_scale != NULL;
  options->build(options->params, parameter, &u);
}
