/* What the loaders of a run are opened with. See setup.h. */

#include "setup/setup.h"

/* Micro-batches decoded ahead: one for each thread and one in use, and some slack for a few threads. */
static brim_loader_options loader_of(const brim_setup *s, enum brim_part part, int64_t batch_max)
{
  const int32_t threads = (int32_t)s->settings->training.num_workers;
  return (brim_loader_options){.data = &s->data,
                               .part = part,
                               .batch_max = batch_max,
                               .real = s->backend_ops->real,
                               .threads = threads,
                               .slots = threads < 4 ? 4 : threads + 1};
}

/* A rank without samples has a loader that ends at once. */
static int64_t at_least_one(int64_t samples)
{
  return samples > 0 ? samples : 1;
}

brim_loader_options brim_setup_train_loader(const brim_setup *s, int64_t batch)
{
  const brim_order order = brim_setup_order(s, batch);
  return loader_of(s, BRIM_PART_TRAIN, at_least_one(brim_order_batch_max(&order)));
}

brim_loader_options brim_setup_part_loader(const brim_setup *s, enum brim_part part, int64_t batch)
{
  int64_t first, count;
  const int64_t most = brim_setup_eval_batch(s, batch);
  brim_setup_part(s, part, &first, &count);
  return loader_of(s, part, most < count ? most : at_least_one(count));
}
