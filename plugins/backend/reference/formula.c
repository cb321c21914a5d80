/* Formulas (brim/formula.h), element by element, line by line. */
#include "reference.h"

static double operand(uint8_t of, const double *registers, const double *uniform)
{
  return of < BRIM_FORMULA_UNIFORM ? registers[of] : uniform[of - BRIM_FORMULA_UNIFORM];
}

REFERENCE(formula, "formula")
{
  const brim_node *n = launch->node;
  const brim_formula *f = n->attr.formula.formula;
  double uniform[BRIM_FORMULA_UNIFORMS_MAX], registers[BRIM_FORMULA_REGISTERS_MAX];
  const int64_t count = brim_shape_count(&n->out[0]->shape);
  brim_formula_uniforms(f, launch->step->scalar, (const void *const *)launch->in, uniform);

  for (int64_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < f->lines; k++) {
      const brim_formula_line *l = &f->line[k];
      if (l->op == BRIM_FORMULA_LOAD)
        registers[l->to] = ((const double *)launch->in[l->a])[brim_shape_count(&n->in[l->a]->shape) == 1 ? 0 : i];
      else if (l->op == BRIM_FORMULA_STORE)
        ((double *)launch->out[l->to])[i] = operand(l->a, registers, uniform);
      else
        registers[l->to] = brim_formula_value(l->op, operand(l->a, registers, uniform),
                                              operand(l->b, registers, uniform), operand(l->c, registers, uniform));
    }
  return BRIM_OK;
}
