/* Computes which samples make up a step, a rank's share of it, and a micro-batch. See order.h. */
#include "data/order.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* ---- shares ---- */

brim_portion brim_portion_even(int32_t rank, int32_t ranks)
{
  return (brim_portion){rank, rank + 1, ranks};
}

void brim_portion_of(const brim_portion *p, int64_t samples, int64_t unit, int64_t *first, int64_t *count)
{
  const int64_t units = samples >= unit ? samples / unit : 1;
  const int64_t from = units * p->from / p->of, to = units * p->to / p->of;
  const int64_t end = to == units ? samples : to * unit; /* the last unit takes the remainder */
  *first = from == units ? samples : from * unit;
  *count = end - *first;
}

static int64_t share_of(const brim_order *o, int64_t samples)
{
  int64_t first, count;
  brim_portion_of(&o->portion, samples, o->unit, &first, &count);
  return count;
}

/* ---- micro-batches of a share ---- */

static int64_t count_micros(const brim_order *o, int64_t share)
{
  const int64_t micros = ceil_div(share, o->batch), last = share - (micros - 1) * o->batch;
  return micros > 1 && last < o->unit ? micros - 1 : micros;
}

static int64_t last_of(const brim_order *o, int64_t share, int64_t micros)
{
  return share - (micros - 1) * o->batch;
}

/* The number of samples in an epoch's last step. */
static int64_t rest_of(const brim_order *o)
{
  return o->count - (o->steps_per_epoch - 1) * o->effective;
}

brim_order brim_order_make(int64_t count, int64_t effective, int64_t batch, int64_t unit, brim_portion portion,
                           int64_t epochs, int64_t steps)
{
  brim_order o = {.count = count, .effective = effective, .batch = batch, .unit = unit, .portion = portion};
  o.steps_per_epoch = ceil_div(count, effective);
  o.steps = steps > 0 ? steps : epochs * o.steps_per_epoch;
  o.micros = count_micros(&o, share_of(&o, effective));
  o.last_micros = count_micros(&o, share_of(&o, rest_of(&o)));
  return o;
}

static size_t add_size(int64_t size[BRIM_ORDER_SIZES], size_t count, int64_t samples)
{
  for (size_t i = 0; i < count; i++)
    if (size[i] == samples) return count;
  size[count] = samples;
  return count + 1;
}

static size_t add_sizes(const brim_order *o, int64_t size[BRIM_ORDER_SIZES], size_t count, int64_t share,
                        int64_t micros)
{
  if (micros > 1) count = add_size(size, count, o->batch);
  return micros > 0 ? add_size(size, count, last_of(o, share, micros)) : count;
}

size_t brim_order_sizes(const brim_order *o, int64_t size[BRIM_ORDER_SIZES])
{
  size_t count = 0;
  if (o->steps_per_epoch > 1) count = add_sizes(o, size, count, share_of(o, o->effective), o->micros);
  return add_sizes(o, size, count, share_of(o, rest_of(o)), o->last_micros);
}

int64_t brim_order_batch_max(const brim_order *o)
{
  int64_t size[BRIM_ORDER_SIZES], largest = 0;
  const size_t count = brim_order_sizes(o, size);
  for (size_t i = 0; i < count; i++)
    if (size[i] > largest) largest = size[i];
  return largest;
}

/* ---- numbers ---- */

static int64_t micros_per_epoch(const brim_order *o)
{
  return (o->steps_per_epoch - 1) * o->micros + o->last_micros;
}

int64_t brim_order_sequence(const brim_order *o, int64_t step)
{
  return step / o->steps_per_epoch * micros_per_epoch(o) + step % o->steps_per_epoch * o->micros;
}

brim_span brim_order_span(const brim_order *o, int64_t sequence)
{
  if (sequence >= brim_order_sequence(o, o->steps)) return (brim_span){BRIM_PART_TRAIN, 0, 0, 0};
  const int64_t per_epoch = micros_per_epoch(o), full = (o->steps_per_epoch - 1) * o->micros;
  const int64_t epoch = sequence / per_epoch, micro = sequence % per_epoch;
  const bool is_last_step = micro >= full;
  const int64_t in_epoch = is_last_step ? o->steps_per_epoch - 1 : micro / o->micros;
  const int64_t number = is_last_step ? micro - full : micro % o->micros; /* within its step */
  const brim_span share = brim_order_share(o, epoch * o->steps_per_epoch + in_epoch);
  const int64_t micros = is_last_step ? o->last_micros : o->micros;
  const int64_t count = number == micros - 1 ? last_of(o, share.count, micros) : o->batch;
  return (brim_span){BRIM_PART_TRAIN, epoch, share.first + number * o->batch, count};
}

brim_span brim_order_step(const brim_order *o, int64_t step)
{
  const int64_t epoch = step / o->steps_per_epoch, first = step % o->steps_per_epoch * o->effective;
  const int64_t rest = o->count - first;
  return (brim_span){BRIM_PART_TRAIN, epoch, first, rest < o->effective ? rest : o->effective};
}

brim_span brim_order_share(const brim_order *o, int64_t step)
{
  brim_span s = brim_order_step(o, step);
  int64_t first, count;
  brim_portion_of(&o->portion, s.count, o->unit, &first, &count);
  s.first += first;
  s.count = count;
  return s;
}

bool brim_order_ends_epoch(const brim_order *o, int64_t step)
{
  return (step + 1) % o->steps_per_epoch == 0;
}
