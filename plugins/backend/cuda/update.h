/* Updates of many tensors in few launches; see program.cu. */
#ifndef CUDA_UPDATE_H
#define CUDA_UPDATE_H
#include "cuda.h"
#include "update_table.h"

/* [step] `count` nodes of one operation, none of which needs what another makes: adamw, adam, yogi, adagrad, sgd,
 * lion, ema or moving_average. The same bits as one after the other. */
brim_status cuda_update_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count);
/* [step] The same of squared_norm; these may be a chain, each going on with the sum before. */
brim_status cuda_squared_norm_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count);
brim_status cuda_distance_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count); /* and distance */
/* [step] As cuda_update_run_all, of adopt, steer, fold or serve. */
brim_status cuda_federate_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count);
/* [step] As cuda_update_run_all, of formula. */
brim_status cuda_formula_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count);
#endif
