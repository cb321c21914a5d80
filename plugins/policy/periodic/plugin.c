/* Cleans up after every so many rounds, lightly or heavily, and heavily at the end. The core itself cleans up when
 * memory is short: see memory.warn_percent and memory.critical_percent. */
#include "brim/brim.h"

typedef struct periodic {
  int64_t light_every_n_rounds, heavy_every_n_rounds;
} periodic;

static const brim_param table[] = {
    BRIM_PARAM(I64, periodic, light_every_n_rounds, "5", "[0,inf)", "rounds between light cleanups; 0: never"),
    BRIM_PARAM(I64, periodic, heavy_every_n_rounds, "10", "[0,inf)", "rounds between heavy cleanups; 0: never"),
    BRIM_PARAMS_END,
};

static bool is_due(const brim_memory_view *m, int64_t every)
{
  return every > 0 && m->round % every == 0;
}

static brim_status on_boundary(void *self, const brim_memory_view *m, brim_boundary *out)
{
  const periodic *p = self;
  if (m->is_end || is_due(m, p->heavy_every_n_rounds))
    out->cleanup = BRIM_CLEAN_HEAVY;
  else if (is_due(m, p->light_every_n_rounds))
    out->cleanup = BRIM_CLEAN_LIGHT;
  if (out->cleanup == BRIM_CLEAN_NONE) return BRIM_ENOTSUP;
  brim_reason(out->reason, m->is_end ? "at the end, after round %lld" : "planned at round %lld", (long long)m->round);
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .on_boundary = on_boundary};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "periodic",
                                   .help = "cleans up memory every few rounds",
                                   .params_size = sizeof(periodic),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
