/* Cleans up as many rounds go by: lightly, heavily, and heavily at the end; and when memory is short.
 *
 * A full arena is how brim works, so of a device only what others have of it counts. */
#include "brim/brim.h"

typedef struct periodic {
  int64_t light_every_n_rounds, heavy_every_n_rounds;
  double warn_percent, critical_percent;
} periodic;

static const brim_param table[] = {
    BRIM_PARAM(I64, periodic, light_every_n_rounds, "5", "[0,inf)", "rounds between light cleanups; 0: none"),
    BRIM_PARAM(I64, periodic, heavy_every_n_rounds, "10", "[0,inf)", "rounds between heavy cleanups; 0: none"),
    BRIM_PARAM(F64, periodic, warn_percent, "85", "[0,100]", "use of memory at which to warn"),
    BRIM_PARAM(F64, periodic, critical_percent, "90", "[0,100]", "use of memory at which to clean up heavily"),
    BRIM_PARAMS_END,
};

static double percent(uint64_t part, uint64_t whole)
{
  return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static double ram_percent(const brim_memory_view *m)
{
  return percent(m->host_total_bytes - m->host_available_bytes, m->host_total_bytes);
}

/* What others have of what this run leaves them. */
static double device_percent(const brim_memory_view *m)
{
  const uint64_t used = m->device_total_bytes - m->device_free_bytes, own = m->device_planned_bytes;
  return used > own ? percent(used - own, m->device_total_bytes - own) : 0;
}

static bool is_due(const brim_memory_view *m, int64_t every)
{
  return every > 0 && m->round % every == 0;
}

static brim_status on_boundary(void *self, const brim_memory_view *m, brim_boundary *out)
{
  const periodic *p = self;
  const double ram = ram_percent(m), device = device_percent(m), worst = ram > device ? ram : device;
  out->warn = worst >= p->warn_percent;
  if (worst >= p->critical_percent || m->is_end || is_due(m, p->heavy_every_n_rounds))
    out->cleanup = BRIM_CLEAN_HEAVY;
  else if (is_due(m, p->light_every_n_rounds))
    out->cleanup = BRIM_CLEAN_LIGHT;
  if (!out->warn && out->cleanup == BRIM_CLEAN_NONE) return BRIM_ENOTSUP;
  brim_reason(out->reason, "%s at round %lld: RAM at %.1f%%, GPU at %.1f%%",
              !out->warn                     ? "planned"
              : worst >= p->critical_percent ? "Critical"
                                             : "Warning",
              (long long)m->round, ram, device);
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .on_boundary = on_boundary};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "periodic",
                                   .help = "cleans up as rounds go by, and when memory is short",
                                   .params_size = sizeof(periodic),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
