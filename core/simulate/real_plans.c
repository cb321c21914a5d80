#include "simulate/real_plans.h"

#include <stdlib.h>

#define REMEMBERED 64 /* plans; a simulation comes back to a few */

typedef struct remembered {
  brim_choice choice; /* with its budget */
  brim_figures figures;
} remembered;

struct brim_real_plans {
  brim_drive *drive;
  remembered plan[REMEMBERED];
  size_t count, next; /* next: the one that is forgotten */
};

brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out)
{
  const brim_setup_options options = {.no_timing = true};
  brim_real_plans *p = brim_xcalloc(1, sizeof *p);
  const brim_status status = brim_drive_open(config, &options, &p->drive);
  if (status != BRIM_OK) {
    free(p);
    return status;
  }
  *out = p;
  return BRIM_OK;
}

void brim_real_plans_close(brim_real_plans *p)
{
  if (!p) return;
  brim_drive_close(p->drive);
  free(p);
}

const brim_drive *brim_real_plans_drive(const brim_real_plans *p)
{
  return p->drive;
}

brim_status brim_real_plans_figures(brim_real_plans *p, const brim_choice *choice, brim_figures *out)
{
  for (size_t i = 0; i < p->count; i++) {
    if (!brim_choice_equal(&p->plan[i].choice, choice)) continue;
    *out = p->plan[i].figures;
    return BRIM_OK;
  }
  BRIM_TRY(brim_planner_figures(&p->drive->planner, choice, out));
  if (p->count < REMEMBERED) p->count++;
  p->plan[p->next] = (remembered){*choice, *out};
  p->next = (p->next + 1) % REMEMBERED;
  return BRIM_OK;
}
