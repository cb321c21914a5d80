/* Steps, micro-batches and samples. */
#include "train/order.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

brim_order brim_order_make(int64_t count, int64_t batch, int64_t accumulation, int64_t least, int64_t epochs,
                           int64_t steps)
{
  brim_order o = {count, batch, accumulation, ceil_div(count, batch), 0, 0, 0};
  o.last = count - (o.micros_per_epoch - 1) * batch;
  const bool is_first = (o.micros_per_epoch - 1) % accumulation == 0; /* of its step */
  if (o.last < least && !is_first) {
    o.micros_per_epoch--;
    o.last += batch;
  }
  o.steps_per_epoch = ceil_div(o.micros_per_epoch, accumulation);
  o.steps = steps > 0 ? steps : epochs * o.steps_per_epoch;
  return o;
}

int64_t brim_order_batch_max(const brim_order *o)
{
  return o->micros_per_epoch > 1 && o->batch > o->last ? o->batch : o->last;
}

int64_t brim_order_sequence(const brim_order *o, int64_t step)
{
  return step / o->steps_per_epoch * o->micros_per_epoch + step % o->steps_per_epoch * o->accumulation;
}

brim_span brim_order_span(const brim_order *o, int64_t sequence)
{
  if (sequence >= brim_order_sequence(o, o->steps)) return (brim_span){BRIM_PART_TRAIN, 0, 0, 0};
  const int64_t epoch = sequence / o->micros_per_epoch, micro = sequence % o->micros_per_epoch;
  const bool is_last = micro == o->micros_per_epoch - 1;
  return (brim_span){BRIM_PART_TRAIN, epoch, micro * o->batch, is_last ? o->last : o->batch};
}

brim_span brim_order_step(const brim_order *o, int64_t step)
{
  const int64_t epoch = step / o->steps_per_epoch, effective = o->batch * o->accumulation;
  const int64_t first = step % o->steps_per_epoch * effective, rest = o->count - first;
  return (brim_span){BRIM_PART_TRAIN, epoch, first, rest < effective ? rest : effective};
}

bool brim_order_ends_epoch(const brim_order *o, int64_t step)
{
  return (step + 1) % o->steps_per_epoch == 0;
}

brim_span brim_order_share(const brim_order *order, int64_t step)
{
  return brim_order_step(order, step);
}
