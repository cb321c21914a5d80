#include "simulate/planner.h"

#include <stdlib.h>

#define REMEMBERED 64 /* plans; a simulation comes back to a few */

typedef struct remembered {
  brim_choice choice; /* with its budget */
  brim_figures figures;
} remembered;

struct brim_planner {
  brim_session *session;
  remembered plan[REMEMBERED];
  size_t count, next; /* next: the one that is forgotten */
};

brim_status brim_planner_open(const brim_config *config, brim_planner **out)
{
  const brim_session_options options = {.no_timing = true};
  brim_planner *p = brim_xcalloc(1, sizeof *p);
  const brim_status status = brim_session_open(config, &options, &p->session);
  if (status != BRIM_OK) {
    free(p);
    return status;
  }
  *out = p;
  return BRIM_OK;
}

void brim_planner_close(brim_planner *p)
{
  if (!p) return;
  brim_session_close(p->session);
  free(p);
}

const brim_session *brim_planner_session(const brim_planner *p)
{
  return p->session;
}

brim_status brim_planner_figures(brim_planner *p, const brim_choice *choice, uint64_t budget, brim_figures *out)
{
  brim_choice c = *choice;
  c.within_bytes = budget;
  for (size_t i = 0; i < p->count; i++) {
    if (!brim_choice_equal(&p->plan[i].choice, &c)) continue;
    *out = p->plan[i].figures;
    return BRIM_OK;
  }
  BRIM_TRY(brim_session_figures(p->session, &c, out));
  if (p->count < REMEMBERED) p->count++;
  p->plan[p->next] = (remembered){c, *out};
  p->next = (p->next + 1) % REMEMBERED;
  return BRIM_OK;
}
