/* Computes how much of clients' updates is sent. See setup.h. */
#include <math.h>

#include "setup/setup_parts.h"

int64_t brim_setup_compressed_count(const brim_setup *s, int64_t count)
{
  const double kept = ceil(s->settings->federate.compression_share * (double)count);
  return kept < (double)count ? (int64_t)kept : count;
}

int64_t brim_setup_compressed_bytes(const brim_setup *s, int64_t count)
{
  const brim_federate_settings *f = &s->settings->federate;
  const int64_t scale = sizeof(float), place = sizeof(uint32_t), value = sizeof(float);
  switch (f->compression) {
  case BRIM_COMPRESSION_QUANTIZE:
    return scale + (count * f->compression_bits + 7) / 8;
  case BRIM_COMPRESSION_SIGN:
    return scale + (count + 7) / 8;
  case BRIM_COMPRESSION_TOP_K:
    return brim_setup_compressed_count(s, count) * (place + value);
  default:
    return count * value;
  }
}

/* Memory for the client's values and the global model's; with top_k also for magnitudes; and for one parameter in the
 * backend's type. */
uint64_t brim_setup_compressing_bytes(const brim_setup *s, int64_t count)
{
  const int32_t kind = s->settings->federate.compression;
  const uint64_t each =
      (kind == BRIM_COMPRESSION_TOP_K ? 3 : 2) * sizeof(double) + brim_dtype_bytes(s->backend_ops->real);
  return kind == BRIM_COMPRESSION_NONE ? 0 : (uint64_t)count * each;
}
