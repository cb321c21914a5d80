/* For authors of optimizers: how a step updates parameters. An optimizer consists of a formula, the states that it
 * keeps of each parameter, and scalars that change from step to step. It needs no kernel and works on every backend
 * that supports formulas.
 *
 *     static const char *const states[] = {"momentum", NULL}, *const scalars[] = {"lr", "keep", NULL};
 *     static const brim_optimizer_ops ops = {.size = sizeof ops,
 *                                            .states = states,
 *                                            .scalars = scalars,
 *                                            .step = step,
 *                                            .formula = "momentum = keep * momentum + g\n"
 *                                                       "p = p - lr * momentum"};
 *
 * brim treats a plugin's states as it treats its own optimizers': it counts them in the plan, saves them in
 * checkpoints, shards and offloads them, and may update parameters during the backward pass. Since ABI 1.10. */
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
  const char *name; /* "exp_avg": the name in formulas; in checkpoints it follows the parameter's name */
  uint32_t dtype;   /* enum brim_dtype */
  brim_shape shape;
  int64_t block; /* consecutive elements of the parameter that share one element of the state; 0: each has its own */
} brim_optimizer_state;

/* The update of one parameter. */
typedef struct brim_update_form {
  const char *formula; /* NULL: `op` applies, which only brim's own optimizers have */
  const char *op;      /* "adamw" */
  uint32_t state_count;
  brim_optimizer_state state[BRIM_OPTIMIZER_STATES_MAX];
  /* Numbers that differ between parameters: names for the formula, and values. */
  uint32_t number_count;
  const char *number_name[BRIM_OPTIMIZER_NUMBERS_MAX];
  double number[BRIM_OPTIMIZER_NUMBERS_MAX];
  bool is_whole; /* an element's update depends on elements outside its block, so slices cannot be updated separately */
} brim_update_form;

/* An update built from several operations: see brim_optimizer_ops.build. */
typedef struct brim_update brim_update;

typedef struct brim_optimizer_step {
  uint64_t step; /* updates made so far; a skipped step does not count */
  double factor; /* the schedule's factor for the learning rate */
} brim_optimizer_step;

typedef struct brim_optimizer_ops {
  uint32_t size;
  const char *const *
      states; /* names, ended by NULL. A state has the parameter's shape and type, and is 0 at first. NULL: no states */
  const char *const
      *scalars; /* names of the scalars that step() writes, in that order, ended by NULL; at most BRIM_SCALARS_MAX */
  /* The elementwise update (brim/formula.h). It may use p (the parameter), g (its gradient, after norm clipping), the
   * states, the scalars and the numbers of the form. It must assign p and every state. */
  const char *formula;
  /* [step] Writes the scalars of a step. Must be a pure function of its arguments, and the scalars must be finite. brim
   * reports the scalar "lr" as the learning rate. */
  void (*step)(const void *self, const brim_optimizer_step *at, double *scalar);
  /* [plan] Adapts the update to one parameter: *out has the formula and states above, and no numbers. With a formula
   * the states must keep their shape and dtype; for build() they may have any shape. Called often; must always give the
   * same result. NULL: all parameters are updated in the same way. */
  void (*form)(const void *self, const brim_tensor *parameter, brim_update_form *out);
  const struct brim_optimizer_kernel *kernel; /* for brim's own optimizers; plugins set NULL */
  /* [plan] Builds the update of a parameter whose form has no formula, with the functions below. Such an update needs
   * the whole parameter. NULL: every form has a formula. */
  void (*build)(const void *self, const brim_tensor *parameter, brim_update *u);
  /* A formula for the values that evaluation and the checkpoint's model use instead of the parameters. It assigns
   * `evaluated` after each step, and may read p, the states, scalars and numbers, but not g. The values need as much
   * memory as the parameters. Not supported with sharding, offload or federations. NULL: the parameters themselves. */
  const char *evaluated;
} brim_optimizer_ops;

/* [plan] The following functions are for build(). Values have names, as in formulas: p, g, the states, and the matrices
 * and sums created here. In formulas a sum is a number that is the same for all elements. The values exist during the
 * update, and the plan counts them. An error fails the plan and names the parameter.
 *
 * Declares a matrix [rows, columns], which a formula or product then assigns. */
BRIM_EXPORT void brim_update_matrix(brim_update *u, const char *name, int64_t rows, int64_t columns);
/* Applies a formula. All values that it names must have the same number of elements; shapes may differ. It may assign
 * p, states and matrices. */
BRIM_EXPORT void brim_update_formula(brim_update *u, const char *formula);
/* Sets the matrix `to` to the product a b, with a or b transposed if so chosen. `to` must not be a or b. */
enum brim_product { BRIM_PRODUCT, BRIM_PRODUCT_A_TRANSPOSED, BRIM_PRODUCT_B_TRANSPOSED };
BRIM_EXPORT void brim_update_product(brim_update *u, const char *to, const char *a, const char *b,
                                     enum brim_product which);
/* Creates the value `name`: the sum of the squares of the elements of `of`, in double precision. */
BRIM_EXPORT void brim_update_squares(brim_update *u, const char *name, const char *of);

/* [any thread] True if `name` matches a shell pattern in a list separated by spaces or commas ("*.bias norm?.*").
 * Optimizers use it for options such as no_decay. */
BRIM_EXPORT bool brim_matches_any(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif
#endif
