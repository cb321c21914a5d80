/* Drops the learning rate at given shares of a run, as papers state them: "divided by ten at 50 % and at 75 % of the
 * steps" (He et al., 2016, for CIFAR-10). The factor is gamma to the power of the milestones passed. */
#include <math.h>

#include <brim/brim.h>

typedef struct settings {
  brim_list at;
  double gamma;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(LIST, settings, at, "[0.5, 0.75]", "[0,1]", "shares of the run's steps after which the factor drops"),
    BRIM_PARAM(F64, settings, gamma, "0.1", "[0,1]", "the factor is multiplied by it at each drop"),
    BRIM_PARAMS_END,
};

static double factor(const void *self, int64_t step, int64_t steps)
{
  const settings *s = self;
  int passed = 0;
  for (size_t i = 0; i < s->at.count; i++)
    if ((double)step >= round(s->at.item[i] * (double)steps)) passed++; /* 0.29 of 100 steps are 29 */
  return pow(s->gamma, passed);
}

static const brim_schedule_ops ops = {sizeof ops, factor};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SCHEDULE,
                                   .id = "milestones",
                                   .ops = &ops,
                                   .help = "drops by gamma at given shares of the run",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("milestones", "1.0", plugins)
