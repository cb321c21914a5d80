#include "base/exact.h"

#include <math.h>

#define LAST (BRIM_EXACT_PARTS - 1)

void brim_exact_add(brim_exact *sum, double number)
{
  double unit = 0x1p16;
  if (!(fabs(number) < 0x1p47)) {
    sum->part[LAST] += number;
    return;
  }
  for (int i = 0; i < LAST; i++, unit *= 0x1p-32) {
    const double part = rint(number / unit) * unit;
    sum->part[i] += part;
    number -= part;
  }
}

void brim_exact_merge(brim_exact *sum, const brim_exact *other)
{
  for (int i = 0; i < BRIM_EXACT_PARTS; i++) sum->part[i] += other->part[i];
}

double brim_exact_value(const brim_exact *sum)
{
  double value = 0;
  for (int i = LAST - 1; i >= 0; i--) value += sum->part[i];
  return value + sum->part[LAST];
}
