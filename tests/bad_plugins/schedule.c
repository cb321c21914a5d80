/* A schedule that misbehaves as $BRIM_BAD says, from a given step on. Without the variable, its factor is 1. */
#include <math.h>

#include "bad.h"

static double factor(const void *self, int64_t step, int64_t steps)
{
  static int64_t calls;
  (void)self, (void)steps;
  if (step < bad_from()) return 1;
  if (bad_is("factor", "nan")) return NAN;
  if (bad_is("factor", "negative")) return -0.5;
  if (bad_is("factor", "infinite")) return INFINITY;
  if (bad_is("factor", "segv")) return *bad_pointer;
  if (bad_is("factor", "impure")) return 1 / (double)++calls;
  return 1;
}

static brim_schedule_ops ops = {sizeof ops, factor};
static const brim_plugin plugin = {
    .size = sizeof plugin, .kind = BRIM_SCHEDULE, .id = "bad", .help = "the full learning rate", .ops = &ops};

__attribute__((constructor)) static void spoil(void)
{
  if (bad_is("table", "factor")) ops.factor = NULL;
}

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-schedule", "0.1", plugins)
