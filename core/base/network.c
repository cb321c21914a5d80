/* Compiled with -ffinite-math-only -fno-signed-zeros: without these options compilers do not use the processor's
 * minimum and maximum instructions. The results are the same with all instructions. */
#include "base/network.h"

#include <stddef.h>
#include <string.h>

/* Algorithm M; only counts the exchanges if out is NULL. */
static uint64_t list_exchanges(uint32_t rows, brim_exchange *out)
{
  uint64_t count = 0;
  uint32_t top = 1;
  while (top * 2 < rows) top *= 2;
  for (uint32_t p = rows > 1 ? top : 0; p > 0; p /= 2) {
    uint32_t q = top, r = 0, d = p;
    for (;;) {
      for (uint32_t i = 0; i + d < rows; i++) {
        if ((i & p) != r) continue;
        if (out) out[count] = (brim_exchange){i, i + d};
        count++;
      }
      if (q == p) break;
      d = q - p;
      q /= 2;
      r = p;
    }
  }
  return count;
}

uint64_t brim_network_count(uint32_t rows)
{
  return list_exchanges(rows, NULL);
}

uint64_t brim_network_make(uint32_t rows, uint32_t first, uint32_t end, brim_exchange *out, uint8_t *needed)
{
  const uint64_t all = list_exchanges(rows, out);
  uint64_t kept = all;
  memset(needed, 0, rows);
  memset(needed + first, 1, end - first);
  for (uint64_t k = all; k-- > 0;) { /* backwards, because an exchange is needed if a later one needs one of its rows */
    if (!needed[out[k].low] && !needed[out[k].high]) continue;
    needed[out[k].low] = needed[out[k].high] = 1;
    out[--kept] = out[k];
  }
  memmove(out, out + kept, (size_t)(all - kept) * sizeof *out);
  return all - kept;
}

static inline __attribute__((always_inline)) void sort(const brim_exchange *exchange, uint64_t count, double *values)
{
  for (uint64_t k = 0; k < count; k++) {
    double *restrict low = values + (size_t)exchange[k].low * BRIM_NETWORK_COLUMNS, *restrict high =
                                                                                        values +
                                                                                        (size_t)exchange[k].high *
                                                                                            BRIM_NETWORK_COLUMNS;
    for (int i = 0; i < BRIM_NETWORK_COLUMNS; i++) {
      const double a = low[i], b = high[i];
      low[i] = a < b ? a : b;
      high[i] = a < b ? b : a;
    }
  }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void sort_avx2(const brim_exchange *exchange, uint64_t count, double *values)
{
  sort(exchange, count, values);
}
#endif

void brim_network_sort(const brim_exchange *exchange, uint64_t count, double *values)
{
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) {
    sort_avx2(exchange, count, values);
    return;
  }
#endif
  sort(exchange, count, values);
}
