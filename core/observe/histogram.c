/* A float is sign (1 bit), exponent (8) and mantissa (23 bits, with a leading 1 unless the exponent is 0, and then the
 * value is subnormal). Its value is mantissa * 2^(max(exponent, 1) - 150). See histogram.h. */
#include "observe/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MANTISSA 0x7fffffu
#define LEADING 0x800000u
#define SIGN 0x80000000u
#define SPECIAL 255 /* exponent of infinities and NaN */

static uint32_t bits_of(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Maps finite values to numbers in the same order, from 1; 0 stands for no value. */
static uint32_t rank_of(uint32_t bits)
{
  return bits & SIGN ? ~bits : bits | SIGN;
}
static double value_of_rank(uint32_t rank)
{
  const uint32_t bits = rank & SIGN ? rank & ~SIGN : ~rank;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void add(brim_histogram *h, float value)
{
  const uint32_t bits = bits_of(value), cell = bits >> 23, exponent = cell & SPECIAL, fraction = bits & MANTISSA;
  if ((bits & ~SIGN) == 0) {
    h->zeros++;
    value = 0; /* -0 is 0 */
  } else if (exponent == SPECIAL) {
    if (fraction)
      h->nans++;
    else
      h->count[cell]++;
    return;
  } else {
    const uint64_t mantissa = exponent > 0 ? fraction | LEADING : fraction;
    h->count[cell]++;
    h->sum[cell] += mantissa;
    h->squares[cell] += mantissa * mantissa;
  }
  const uint32_t rank = rank_of(bits_of(value));
  if (h->least == 0 || rank < h->least) h->least = rank;
  if (rank > h->most) h->most = rank;
}

void brim_histogram_add(brim_histogram *h, const float *values, size_t count, float factor)
{
  if (factor == 1)
    for (size_t i = 0; i < count; i++) add(h, values[i]);
  else
    for (size_t i = 0; i < count; i++) add(h, values[i] * factor);
}

void brim_histogram_add_ratios(brim_histogram *h, brim_histogram *change, const float *before, const float *after,
                               size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const float difference = after[i] - before[i];
    add(h, difference == 0 ? 0 : fabsf(difference) / fabsf(before[i]));
    if (change) add(change, difference);
  }
}

void brim_histogram_merge(brim_histogram *h, const brim_histogram *other)
{
  for (int i = 0; i < BRIM_HISTOGRAM_CELLS; i++) {
    h->count[i] += other->count[i];
    h->sum[i] += other->sum[i];
    h->squares[i] += other->squares[i];
  }
  h->zeros += other->zeros;
  h->nans += other->nans;
  h->lost += other->lost;
  if (other->least > 0 && (h->least == 0 || other->least < h->least)) h->least = other->least;
  if (other->most > h->most) h->most = other->most;
}

static int bin_of(int exponent)
{
  const int bin = (exponent > 0 ? exponent : 1) - 127 - BRIM_HISTOGRAM_FIRST;
  return bin < 0 ? 0 : bin < BRIM_HISTOGRAM_BINS ? bin : BRIM_HISTOGRAM_BINS - 1;
}

/* Adds up in the fixed order of the cells, beginning with the smallest magnitudes. */
void brim_histogram_read(const brim_histogram *h, brim_histogram_figures *out)
{
  *out = (brim_histogram_figures){.zeros = h->zeros, .nans = h->nans};
  uint64_t finite = h->zeros;
  for (int cell = 0; cell < SPECIAL; cell++) {
    const double unit = ldexp(1, (cell > 0 ? cell : 1) - 150);
    const int negative = cell + SPECIAL + 1;
    finite += h->count[cell] + h->count[negative];
    out->positive[bin_of(cell)] += h->count[cell];
    out->negative[bin_of(cell)] += h->count[negative];
    out->sum += ((double)h->sum[cell] - (double)h->sum[negative]) * unit;
    out->squares += ((double)h->squares[cell] + (double)h->squares[negative]) * unit * unit;
  }
  out->infinite = h->count[SPECIAL] + h->count[2 * SPECIAL + 1];
  out->values = finite + out->infinite + out->nans;
  out->least = finite > 0 ? value_of_rank((uint32_t)h->least) : NAN;
  out->most = finite > 0 ? value_of_rank((uint32_t)h->most) : NAN;
  out->mean = finite > 0 ? out->sum / (double)finite : NAN;
  out->rms = finite > 0 ? sqrt(out->squares / (double)finite) : NAN;
}

static void print_number(brim_text *out, const char *key, double value)
{
  if (isfinite(value))
    brim_text_printf(out, ",\"%s\":%.9g", key, value);
  else
    brim_text_printf(out, ",\"%s\":null", key);
}

static void print_bins(brim_text *out, const char *key, const uint64_t *bin, int first, int end)
{
  brim_text_printf(out, ",\"%s\":[", key);
  for (int i = first; i < end; i++) {
    if (i > first) brim_text_add(out, ",");
    brim_text_int(out, (int64_t)bin[i]);
  }
  brim_text_add(out, "]");
}

void brim_histogram_print(const brim_histogram_figures *f, brim_text *out)
{
  int first = 0, end = BRIM_HISTOGRAM_BINS;
  while (first < end && f->negative[first] + f->positive[first] == 0) first++;
  while (end > first && f->negative[end - 1] + f->positive[end - 1] == 0) end--;
  brim_text_printf(out, "\"counted\":%" PRIu64 ",\"zeros\":%" PRIu64 ",\"nan\":%" PRIu64 ",\"infinite\":%" PRIu64,
                   f->values, f->zeros, f->nans, f->infinite);
  print_number(out, "min", f->least);
  print_number(out, "max", f->most);
  print_number(out, "mean", f->mean);
  print_number(out, "rms", f->rms);
  brim_text_printf(out, ",\"first\":%d", first < end ? first + BRIM_HISTOGRAM_FIRST : 0);
  print_bins(out, "negative", f->negative, first, end);
  print_bins(out, "positive", f->positive, first, end);
}

bool brim_histogram_block(int64_t values, int64_t k, int64_t *first, int64_t *count)
{
  const bool is_whole = values <= BRIM_HISTOGRAM_VALUES_MAX;
  if (values <= 0 || k >= (is_whole ? 1 : BRIM_HISTOGRAM_BLOCKS)) return false;
  *count = is_whole ? values : BRIM_HISTOGRAM_BLOCK;
  *first = is_whole ? 0 : (values - *count) / (BRIM_HISTOGRAM_BLOCKS - 1) * k;
  return true;
}
