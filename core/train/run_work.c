/* A run's trainer as work whose plan may change: see drive/work.h. */
#include "train/run_parts.h"

static int64_t step_of(void *self)
{
  const brim_running *r = self;
  return brim_trainer_state(r->trainer)->step;
}

static uint64_t placed_bytes(void *self)
{
  const brim_running *r = self;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  return plan ? plan->peak_bytes : 0;
}

static bool has_values(void *self)
{
  const brim_running *r = self;
  return brim_trainer_has_values(r->trainer);
}

static void clean(void *self, enum brim_cleanup cleanup)
{
  const brim_running *r = self;
  brim_trainer_clean(r->trainer, cleanup);
}

static brim_status park(void *self)
{
  const brim_running *r = self;
  return brim_trainer_park(r->trainer);
}

static brim_status replan(void *self)
{
  const brim_running *r = self;
  return brim_trainer_replan(r->trainer);
}

brim_status brim_running_find_newest(brim_running *r)
{
  bool found = false;
  const brim_status status = brim_checkpoint_find(r->dir, r->checkpoint, sizeof r->checkpoint, &found);
  if (!found) r->checkpoint[0] = '\0';
  return status;
}

/* What --resume does, in this process; ranks to the checkpoint that they have agreed on. */
static brim_status rewind_run(void *self)
{
  brim_running *r = self;
  if (!r->options->dist) BRIM_TRY(brim_running_find_newest(r));
  return brim_trainer_restart(r->trainer, r->checkpoint[0] ? r->checkpoint : NULL);
}

static void follow(void *self, brim_drive *drive)
{
  const brim_running *r = self;
  brim_trainer_follow(r->trainer, drive);
}

brim_work brim_running_work(brim_running *r)
{
  return (brim_work){.self = r,
                     .step = step_of,
                     .placed_bytes = placed_bytes,
                     .has_values = has_values,
                     .clean = clean,
                     .park = park,
                     .replan = replan,
                     .rewind = rewind_run,
                     .follow = follow};
}
