#include "drive/relief.h"

/* So many bytes are to go, so that `used` is `percent` of `total`. */
static double excess(double used, double total, double percent)
{
  const double wanted = percent / 100 * total;
  return used > wanted ? used - wanted : 0;
}

uint64_t brim_relief_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                            const brim_pressure_reading *reading)
{
  const double percent = settings->warn_percent > 0 && settings->warn_percent < settings->critical_percent
                             ? settings->warn_percent
                             : settings->critical_percent;
  const double arena = (double)arena_bytes;
  double much = 0;
  if (on_host && reading->host.ram_percent >= settings->critical_percent)
    much = excess((double)reading->host.ram_used_bytes, (double)reading->host.ram_total_bytes, percent);
  if (reading->device_grew && reading->device_percent >= settings->critical_percent) {
    /* what others have is to be `percent` of what is left then */
    const double left = 100 / percent * (double)reading->device_others_bytes,
                 more = left - (double)reading->device_left_bytes;
    if (more > much) much = more;
  }
  return much > 0 ? (uint64_t)(much < arena / 2 ? arena - much : arena / 2) : 0;
}
