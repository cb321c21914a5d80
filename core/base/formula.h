/* Reads formulas; brim/formula.h describes the language. */
#ifndef BRIM_BASE_FORMULA_H
#define BRIM_BASE_FORMULA_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/optimizer.h"
#include "brim/status.h"

/* The meaning of a formula's names. */
enum brim_formula_kind {
  BRIM_NAME_ELEMENT, /* an element of input `index` (-1: not an input); must be assigned if `output` is not -1 */
  BRIM_NAME_FACTOR,  /* an element, multiplied by element 1 of the f64 input `factor` */
  BRIM_NAME_FIXED,   /* element 0 of input `index`, which is f64: the same for all elements */
  BRIM_NAME_SCALAR,  /* step.scalar[index] */
  BRIM_NAME_NUMBER   /* `number` */
};
typedef struct brim_formula_name {
  const char *name;
  enum brim_formula_kind kind;
  int32_t index, output, factor;
  bool is_optional; /* the formula may leave it unassigned */
  bool is_wanted;   /* for inputs: brim_formula_read_gradient computes its derivative as an output */
  double number;
} brim_formula_name;

/* [plan] Reads `text`. EINVAL, with line and column, if it is not a valid formula: unknown names, an output that is not
 * assigned, more than the limits of brim/formula.h. */
brim_status brim_formula_read(const char *text, const brim_formula_name *given, size_t names, brim_formula *out);
/* [plan] Derives the gradients of a formula with one output. The new formula computes them from the output's gradient,
 * input `flow`; its outputs are the gradients of the elements with is_wanted, in their order. */
brim_status brim_formula_read_gradient(const char *text, const brim_formula_name *given, size_t names, int32_t flow,
                                       brim_formula *out);
/* [plan] Writes the names of a form's numbers and of the scalars, at most BRIM_FORMULA_NUMBERS_MAX, to `list`; returns
 * their number. scalars: as in brim_optimizer_ops. */
#define BRIM_FORMULA_NUMBERS_MAX (BRIM_OPTIMIZER_NUMBERS_MAX + BRIM_SCALARS_MAX)
size_t brim_formula_list_numbers(const brim_update_form *form, const char *const *scalars, brim_formula_name *list);
/* [plan] Reads an optimizer's update. Inputs: parameter, gradient, states, and, if `scaled`, gradient_scale's f64 [2].
 * Outputs: parameter, states. */
brim_status brim_formula_read_update(const brim_update_form *form, const char *const *scalars, bool scaled,
                                     brim_formula *out);
/* [plan] Reads brim_optimizer_ops.evaluated. Inputs: parameter, states. Output: the values to evaluate with. */
brim_status brim_formula_read_evaluated(const char *text, const brim_update_form *form, const char *const *scalars,
                                        brim_formula *out);
#endif
