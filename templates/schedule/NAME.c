/* @NAME@: a schedule whose factor rises linearly to 1, then falls with the inverse square root of the step (Vaswani et
 * al., 2017):
 *
 *     factor = min((step + 1) / warmup_steps, sqrt(warmup_steps / (step + 1)))
 *
 * brim/schedule.h is the interface of schedules. */
#include <brim/brim.h>
#include <math.h>

typedef struct settings { /* brim fills this struct from the table below */
  int64_t warmup_steps;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, warmup_steps, "10", "[1,inf)", "steps in which the factor rises"),
    BRIM_PARAMS_END,
};

/* Returns the factor of the learning rate in step `step` of `steps`, counted from 0. It must depend on nothing else. */
static double factor(const void *self, int64_t step, int64_t steps)
{
  const settings *s = self;
  const double warmup = (double)s->warmup_steps, at = (double)step + 1;
  (void)steps; /* the length of the run does not matter here */
  return fmin(at / warmup, sqrt(warmup / at));
}

static const brim_schedule_ops ops = {sizeof ops, factor};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SCHEDULE,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "linear warm-up, then inverse square root decay",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
