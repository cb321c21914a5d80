/* Checks of schedules: every factor is finite and not negative, and the same when it is computed again, for runs of
 * several lengths. See check.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "builtin/builtin.h"
#include "cli/check/check.h"

static const int64_t lengths[] = {1, 2, 7, 100, 10000};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

static brim_status configure(brim_check *c, const char *further, brim_config **out)
{
  static const char *const word[] = {"model=mlp", "dataset=synthetic", "policy=[]", NULL};
  return brim_check_config(c, word, further, out);
}

/* Computes all steps twice, the second time from last to first, because a resumed run starts in the middle. */
static brim_status ask_twice(const brim_check *c, const void *self, int64_t steps)
{
  double *first = brim_xcalloc((size_t)steps, sizeof *first);
  brim_status status = BRIM_OK;
  for (int64_t i = 0; i < steps && status == BRIM_OK; i++)
    status = brim_schedule_factor(c->plugin, self, i, steps, &first[i]);
  for (int64_t i = steps; i-- > 0 && status == BRIM_OK;) {
    double again = 0;
    status = brim_schedule_factor(c->plugin, self, i, steps, &again);
    if (status == BRIM_OK && (again < first[i] || again > first[i]))
      status = brim_fail(BRIM_EPLUGIN,
                         "the factor of step %" PRId64 " of %" PRId64 " is %.17g, and %.17g when it is computed "
                         "again: it must depend on its arguments alone",
                         i, steps, first[i], again);
  }
  free(first);
  return status;
}

static brim_status ask_all(brim_check *c, const char *further, bool *refused)
{
  brim_config *config = NULL;
  brim_status status = configure(c, further, &config);
  *refused = status != BRIM_OK;
  for (size_t i = 0; i < LENGTHS && status == BRIM_OK; i++)
    status = ask_twice(c, brim_config_choice_of(config, "schedule")->params, lengths[i]);
  brim_config_free(config);
  return status;
}

static enum brim_finding check_factor(brim_check *c)
{
  bool refused = false;
  brim_config *config = NULL;
  if (ask_all(c, NULL, &refused) != BRIM_OK) return brim_check_blame(c, refused);
  if (configure(c, NULL, &config) != BRIM_OK) return brim_check_error(c, "its configuration");
  const void *self = brim_config_choice_of(config, "schedule")->params;
  brim_text curve = {0};
  for (int64_t percent = 0; percent <= 100; percent += 25) {
    const int64_t step = percent == 100 ? 999 : percent * 10;
    double factor = 0;
    (void)brim_schedule_factor(c->plugin, self, step, 1000, &factor);
    brim_text_printf(&curve, "%s%.4g at %" PRId64 " %%", percent > 0 ? ", " : "", factor, percent);
  }
  brim_config_free(config);
  const enum brim_finding finding =
      brim_check_say(c, BRIM_FOUND_OK, "runs of 1 to 10000 steps; of 1000: %s", brim_text_str(&curve));
  brim_text_release(&curve);
  return finding;
}

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  bool refused = false;
  const brim_status status = ask_all(c, word, &refused);
  return brim_check_tried(c, word, status, refused);
}

const brim_check_kind brim_schedule_checks[] = {{"factor", check_factor}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
