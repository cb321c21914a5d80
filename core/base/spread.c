#include "base/spread.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/order.h"

#define ROOM_LEAST 256

/* Sorts the entries in ascending order and merges duplicates. The value is the first member of an entry. */
static void put_in_order(brim_tally *t)
{
  size_t count = 0;
  if (t->count > 0) qsort(t->item, t->count, sizeof *t->item, brim_by_double);
  for (size_t i = 0; i < t->count; i++)
    if (count > 0 && t->item[count - 1].value == t->item[i].value)
      t->item[count - 1].times += t->item[i].times;
    else
      t->item[count++] = t->item[i];
  t->count = count;
}

brim_status brim_tally_add(brim_tally *t, double value)
{
  if (t->count == t->room) {
    put_in_order(t);
    if (t->count * 2 >= t->room) {
      const size_t room = t->room > 0 ? 2 * t->room : ROOM_LEAST;
      brim_tally_item *item = brim_try_realloc(t->item, room * sizeof *item);
      if (!item) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %zu different values", room);
      t->item = item;
      t->room = room;
    }
  }
  t->item[t->count++] = (brim_tally_item){value, 1};
  return BRIM_OK;
}

brim_spread brim_tally_spread(brim_tally *t)
{
  double n = 0, sum = 0, squares = 0, ranked = 0; /* ranked: sum of values times their ranks from 1 */
  put_in_order(t);
  for (size_t i = 0; i < t->count; i++) {
    const double value = t->item[i].value, times = t->item[i].times;
    sum += value * times;
    ranked += value * times * (n + (times + 1) / 2);
    n += times;
  }
  for (size_t i = 0; i < t->count; i++) {
    const double away = t->item[i].value - sum / n;
    squares += away * away * t->item[i].times;
  }
  return (brim_spread){.mean = sum / n, .variance = squares / n, .gini = 2 * ranked / (n * sum) - (n + 1) / n};
}

void brim_tally_release(brim_tally *t)
{
  free(t->item);
  *t = (brim_tally){0};
}
