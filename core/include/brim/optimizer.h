/* Optimizers: how parameters change in a step. An optimizer is a formula, what it keeps of each parameter, and numbers
 * that change from step to step; no kernel is written for it, and it works on every backend that has formulas.
 *
 *     static const char *const states[] = {"momentum", NULL}, *const scalars[] = {"lr", "keep", NULL};
 *     static const brim_optimizer_ops ops = {.size = sizeof ops,
 *                                            .states = states,
 *                                            .scalars = scalars,
 *                                            .step = step,
 *                                            .formula = "momentum = keep * momentum + g\n"
 *                                                       "p = p - lr * momentum"};
 *
 * What brim does with states, it does with these: they are in the plan's bytes and in checkpoints, are sharded over
 * ranks and offloaded, and an update may be part of the backward pass. Since ABI 1.10. */
#ifndef BRIM_OPTIMIZER_H
#define BRIM_OPTIMIZER_H
#include <stdbool.h>

#include "brim/formula.h"
#include "brim/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_OPTIMIZER_STATES_MAX 4
#define BRIM_OPTIMIZER_NUMBERS_MAX 8

typedef struct brim_optimizer_state {
  const char *name; /* "exp_avg": as in formulas, and in checkpoints behind the parameter's name */
  uint32_t dtype;   /* enum brim_dtype */
  brim_shape shape;
  int64_t block; /* so many elements of the parameter, in their order, have one of the state; 0: each has its own */
} brim_optimizer_state;

/* How one parameter is updated. */
typedef struct brim_update_form {
  const char *formula; /* NULL: by `op`, which is for brim's own optimizers */
  const char *op;      /* "adamw" */
  uint32_t state_count;
  brim_optimizer_state state[BRIM_OPTIMIZER_STATES_MAX];
  /* What differs between parameters: names for the formula, and their numbers. */
  uint32_t number_count;
  const char *number_name[BRIM_OPTIMIZER_NUMBERS_MAX];
  double number[BRIM_OPTIMIZER_NUMBERS_MAX];
  bool is_whole; /* an element's update depends on others but those of its block: slices cannot be updated apart */
} brim_update_form;

/* An update that is being built of several operations: see brim_optimizer_ops.build. */
typedef struct brim_update brim_update;

typedef struct brim_optimizer_step {
  uint64_t step; /* updates made so far; a skipped step makes none */
  double factor; /* the schedule's factor of the learning rate */
} brim_optimizer_step;

typedef struct brim_optimizer_ops {
  uint32_t size;
  const char *const
      *states; /* names, NULL behind the last: each of the parameter's shape and type, 0 at first; NULL: none */
  const char *const
      *scalars; /* names of what step() writes, in its order, NULL behind the last; at most BRIM_SCALARS_MAX */
  /* How a parameter changes, element by element (brim/formula.h). Names: p, the parameter; g, its gradient, with
   * whatever limits the norm; states; scalars; numbers of the form. p and each state must be given a value. */
  const char *formula;
  /* [step] Writes the scalars of a step, a pure function of its arguments. One that is named "lr" is shown as the
   * learning rate. All finite. */
  void (*step)(const void *self, const brim_optimizer_step *at, double *scalar);
  /* [plan] Changes *out for one parameter; it comes with the formula and states above, and no numbers. An optimizer
   * with a formula keeps its states' shape and dtype; in a form for build() the states may have any shape. Called
   * often, must always answer the same. NULL: all parameters are updated alike. */
  void (*form)(const void *self, const brim_tensor *parameter, brim_update_form *out);
  const struct brim_optimizer_kernel *kernel; /* of brim's own optimizers; NULL */
  /* [plan] Builds, with the functions below, the update of a parameter whose form has no formula; such an update needs
   * the whole parameter. NULL: every form has a formula. */
  void (*build)(const void *self, const brim_tensor *parameter, brim_update *u);
  /* What evaluation and the checkpoint's model use in the place of a parameter, as a formula that gives the name
   * `evaluated` a value after each step; it may read p, the states, scalars and numbers, but not g. It takes the memory
   * of the parameters once more. Not with sharding, offload, or in a federation. NULL: the parameter itself. */
  const char *evaluated;
} brim_optimizer_ops;

/* [plan] For build(). Values are named as in formulas: p, g, the states, and those that are made here: matrices, and
 * sums, which formulas have as numbers that are the same for all elements. They exist while the update runs; the plan
 * counts them. What is wrong fails the plan, with the name of the parameter.
 *
 * A matrix [rows, columns], to be given values by formula or product. */
BRIM_EXPORT void brim_update_matrix(brim_update *u, const char *name, int64_t rows, int64_t columns);
/* Does a formula. The values it names have one number of elements, whatever their shapes; those that it gives a value
 * are p, states or matrices. */
BRIM_EXPORT void brim_update_formula(brim_update *u, const char *formula);
/* The matrix `to` = a b, or with one of them transposed. Not a or b themselves. */
enum brim_product { BRIM_PRODUCT, BRIM_PRODUCT_A_TRANSPOSED, BRIM_PRODUCT_B_TRANSPOSED };
BRIM_EXPORT void brim_update_product(brim_update *u, const char *to, const char *a, const char *b,
                                     enum brim_product which);
/* The sum of the squares of a value's elements, under a new name; in double precision. */
BRIM_EXPORT void brim_update_squares(brim_update *u, const char *name, const char *of);

/* [any thread] Does a name match one of the shell patterns in a list separated by spaces or commas
 * ("*.bias norm?.*")? Optimizers use it for options such as no_decay. */
BRIM_EXPORT bool brim_matches_any(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif
#endif
