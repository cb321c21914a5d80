/* Elementwise formulas (brim/formula.h): in updates, and in models and losses, where the derivative is another
 * formula. */
#include <math.h>
#include <string.h>

#include "base/formula.h"
#include "base/text.h"
#include "brim/model.h"
#include "graph/graph.h"

#undef brim_elementwise
#undef brim_softcap

enum { FLOPS_OF_LINE = 2 }; /* most lines are one operation; a root or an exponential takes many */
enum { NAMES_MAX = 32 };

/* The text of a node's formula, for its derivative. */
struct brim_formula_source {
  const char *text;
  size_t names;
  brim_formula_name name[NAMES_MAX]; /* the first is y; the others are in the order of the inputs and include numbers */
};

static void cost_formula(const brim_node *n, brim_cost *out)
{
  out->flops = FLOPS_OF_LINE * n->attr.formula.formula->lines * (uint64_t)brim_shape_count(&n->out[0]->shape);
}

/* Emits the gradients of the inputs that need one, from the inputs and the output's gradient. */
static brim_status gradient_formula(brim_autodiff *ad, const brim_node *n)
{
  const struct brim_formula_source *source = n->attr.formula.source;
  struct brim_formula_source with = *source;
  brim_tensor *in[BRIM_FORMULA_OPERANDS_MAX], *of[BRIM_FORMULA_OPERANDS_MAX];
  uint32_t count = 0;
  for (uint32_t k = 0; k < n->in_count; k++) in[k] = n->in[k];
  in[n->in_count] = brim_autodiff_of(ad, n->out[0]);
  for (size_t i = 1; i < with.names; i++) {
    brim_formula_name *name = &with.name[i];
    if (name->kind != BRIM_NAME_ELEMENT || !brim_autodiff_needs(ad, n->in[name->index])) continue;
    name->is_wanted = true;
    of[count++] = n->in[name->index];
  }
  if (count == 0) return BRIM_OK;
  brim_formula *f = BRIM_ARENA_NEW(brim_autodiff_arena(ad), brim_formula, 1);
  const brim_status status = brim_formula_read_gradient(with.text, with.name, with.names, (int32_t)n->in_count, f);
  if (status != BRIM_OK) return brim_fail_add(status, "in the derivative of '%s' (%s:%d)", with.text, n->file, n->line);
  return brim_autodiff_emit(ad, "formula", n, &(brim_attr){.formula = {.formula = f}}, in, n->in_count + 1, of, count);
}

static uint64_t hash_formula(const brim_attr *attr)
{
  return brim_hash(BRIM_HASH_START, attr->formula.formula, sizeof(brim_formula));
}

BRIM_OP(formula) = {.name = "formula",
                    .traits = BRIM_OP_APART,
                    .signature = "x [...], ... -> y [...], ...",
                    .each_token = brim_op_each_token,
                    .inplace = BRIM_OP_FROM(0),
                    .infer = brim_op_infer_same,
                    .gradient = gradient_formula,
                    .cost = cost_formula,
                    .hash = hash_formula};

/* ---- formulas of authors ---- */

static bool add_elements(brim_graph *g, const char *name, const brim_operand *o, brim_tensor **in, uint32_t *count)
{
  char text[160], first_text[160];
  if (!brim_graph_accepts_real(g, name, o->name, o->elements) ||
      !brim_graph_needs_samples(g, name, o->name, o->elements))
    return false;
  if (*count == BRIM_OPERANDS_MAX) {
    brim_graph_fail(g, name, o->name, "at most %d tensors are allowed", BRIM_OPERANDS_MAX);
    return false;
  }
  if (*count > 0 && !brim_shape_equal(&in[0]->shape, &o->elements->shape)) {
    brim_graph_fail(g, name, o->name, "the tensors must have the same shape, got %s after %s",
                    brim_shape_format(text, sizeof text, &o->elements->shape),
                    brim_shape_format(first_text, sizeof first_text, &in[0]->shape));
    return false;
  }
  in[(*count)++] = o->elements;
  return true;
}

brim_tensor *brim_elementwise(brim_graph *g, const char *name, const char *formula, const brim_operand *operands)
{
  brim_tensor *in[BRIM_OPERANDS_MAX];
  uint32_t count = 0;
  if (g->status != BRIM_OK || !brim_graph_needs_list(g, name, NULL, formula, "formula")) return NULL;
  struct brim_formula_source *s = BRIM_ARENA_NEW(&g->arena, struct brim_formula_source, 1);
  s->text = brim_arena_string(&g->arena, formula);
  s->name[s->names++] = (brim_formula_name){.name = "y", .kind = BRIM_NAME_ELEMENT, .index = -1};
  for (const brim_operand *o = operands; o->name; o++) {
    if (s->names == NAMES_MAX) {
      brim_graph_fail(g, name, o->name, "at most %d operands are allowed", NAMES_MAX - 1);
      return NULL;
    }
    if (!o->is_number && !add_elements(g, name, o, in, &count)) return NULL;
    s->name[s->names++] = (brim_formula_name){.name = brim_arena_string(&g->arena, o->name),
                                              .kind = o->is_number ? BRIM_NAME_NUMBER : BRIM_NAME_ELEMENT,
                                              .index = (int32_t)count - 1,
                                              .output = -1,
                                              .number = o->number};
  }
  if (count == 0) {
    brim_graph_fail(g, name, NULL, "none of its operands is a tensor");
    return NULL;
  }
  brim_formula *f = BRIM_ARENA_NEW(&g->arena, brim_formula, 1);
  if (brim_formula_read(s->text, s->name, s->names, f) != BRIM_OK) {
    brim_graph_fail(g, name, NULL, "%s", brim_error_text());
    return NULL;
  }
  return brim_graph_apply(g, "formula", name, in, count, &(brim_attr){.formula = {.formula = f, .source = s}});
}

brim_tensor *brim_softcap(brim_graph *g, brim_tensor *x, double cap)
{
  const brim_operand operands[] = {BRIM_ELEMENTS("x", x), BRIM_NUMBER("cap", cap), {NULL, NULL, 0, 0}};
  if (!(cap > 0 && isfinite(cap))) {
    brim_graph_fail(g, "softcap", NULL, "cap must be a finite number above 0, got %g", cap);
    return NULL;
  }
  brim_tensor *y = brim_elementwise(g, "softcap", "y = cap * tanh(x / cap)", operands);
  g->uncapped = y ? x : NULL;
  g->softcap = cap;
  return y;
}
