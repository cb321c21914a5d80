/* Operations of a federated round, for many parameters in one launch (update_table.h); distance is in clip.cu.
 *
 *     adopt   y = x
 *     steer   y = y + (w - g) * step.federated + control * step.control
 *     fold    v = (w - g) * step.federated,  q = (v + 1536) - 1536,  sum = sum + q
 *     serve   y = -(sum * step.federated)  or  x = x + sum * step.federated
 *
 * Bytes per element: 8, 16 or 20, 24, and 12 or 16. Memory's speed is the limit, so neighbouring threads read
 * neighbouring values. Sums are in double precision. Products use __dmul_rn, which nvcc does not contract with an
 * addition, so fold rounds as brim/ops.h specifies, and gives the same bits as the other backends. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "update.h"
}

enum kind { ADOPT, STEER, FOLD, SERVE };
/* Entries: x or w; g; the sum, or steer's control; the result, which may be one of them. */
enum tensors { X, FROM, SUM, TO };

/* `second`: the factor of the control. */
template <enum kind K>
static __device__ inline void federate(const cuda_table_entry &e, int64_t i, double factor, double second)
{
  const float *x = static_cast<const float *>(e.tensor[X]), *from = static_cast<const float *>(e.tensor[FROM]);
  const double *sum = static_cast<const double *>(e.tensor[SUM]);
  if constexpr (K == ADOPT) {
    static_cast<float *>(e.tensor[TO])[i] = x[i];
  } else if constexpr (K == STEER) {
    const float *steering = static_cast<const float *>(e.tensor[SUM]);
    float *gradient = static_cast<float *>(e.tensor[TO]);
    double steered = (double)gradient[i] + __dmul_rn((double)x[i] - (double)from[i], factor);
    if (steering) steered += __dmul_rn((double)steering[i], second);
    gradient[i] = (float)steered;
  } else if constexpr (K == FOLD) {
    const double v = __dmul_rn((double)x[i] - (double)from[i], factor);
    const double q = (v + 1536.0) - 1536.0;
    static_cast<double *>(e.tensor[TO])[i] = sum[i] + q;
  } else {
    const double mean = __dmul_rn(sum[i], factor);
    static_cast<float *>(e.tensor[TO])[i] = x ? (float)((double)x[i] + mean) : -(float)mean;
  }
}

template <enum kind K, typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    federate_kernel(const __grid_constant__ TABLE table, const cuda_control *control)
{
  if (cuda_refused(control)) return;
  const double factor = control->step.federated, second = control->step.control;
  for (uint32_t part = blockIdx.x; part < table.head.parts; part += gridDim.x) {
    const cuda_table_entry &e = table.entry[cuda_table_find(table.entry, table.head.entries, part)];
    const int64_t start = (int64_t)(part - e.first) * CUDA_UPDATE_PIECE;
    const int64_t end = cuda_min(e.count, start + CUDA_UPDATE_PIECE);
    for (int64_t i = start + threadIdx.x; i < end; i += CUDA_THREADS) federate<K>(e, i, factor, second);
  }
}

/* ---- launching ---- */

template <enum kind K>
static brim_status launch_table(cuda_backend *b, const cuda_table *table, const cuda_control *control)
{
  if (table->head.entries == 0) return BRIM_OK;
  const cuda_geometry g = cuda_stride((int64_t)table->head.parts * CUDA_THREADS, 1, b->processors);
  if (table->head.entries > CUDA_TABLE_FEW) return cuda_launch(b, federate_kernel<K, cuda_table>, g, *table, control);
  cuda_table_few few;
  memcpy(&few, table, sizeof few);
  return cuda_launch(b, federate_kernel<K, cuda_table_few>, g, few, control);
}

template <enum kind K> static cuda_table_entry make_entry(const brim_launch *launch)
{
  cuda_table_entry e = {};
  e.count = brim_shape_count(&launch->node->in[0]->shape);
  e.tensor[TO] = launch->out[0];
  if (K == SERVE) {
    e.tensor[SUM] = launch->in[0];
    e.tensor[X] = launch->node->in_count > 1 ? launch->in[1] : nullptr;
    return e;
  }
  e.tensor[X] = launch->in[0];
  if (K == STEER || K == FOLD) e.tensor[FROM] = launch->in[1];
  if (K == STEER) e.tensor[SUM] = launch->node->in_count > 3 ? launch->in[3] : nullptr; /* the gradient is in place */
  if (K == FOLD) e.tensor[SUM] = launch->in[2];
  return e;
}

template <enum kind K> static brim_status run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  cuda_table table;
  const cuda_control *control = cuda_control_of(b, launch[0]);
  if (!control) return BRIM_EDEVICE;
  cuda_table_clear(&table, nullptr);
  for (size_t i = 0; i < count; i++) {
    const cuda_table_entry e = make_entry<K>(launch[i]);
    const int64_t parts = cuda_update_parts(e.count);
    if (cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX)) continue;
    BRIM_TRY(launch_table<K>(b, &table, control));
    cuda_table_clear(&table, nullptr);
    cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX);
  }
  return launch_table<K>(b, &table, control);
}

template <enum kind K> static CUDA_RUN(run)
{
  return run_all<K>(static_cast<cuda_backend *>(self), &launch, 1);
}

#define FEDERATE(id, K)                                                                                                \
  BRIM_KERNEL(id) = {.op = #id, .run = run<K>};                                                                        \
  CUDA_GATHERING(id, run_all<K>, true)
FEDERATE(adopt, ADOPT);
FEDERATE(steer, STEER);
FEDERATE(fold, FOLD);
FEDERATE(serve, SERVE);
