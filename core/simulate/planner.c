#include "simulate/planner.h"

#include <stdlib.h>

#define REMEMBERED 64 /* plans; a simulation comes back to a few */

typedef struct remembered {
  brim_variant variant; /* with its budget */
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

static bool is_same(const brim_variant *a, const brim_variant *b)
{
  return a->batch == b->batch && a->precision == b->precision && a->recompute == b->recompute &&
         a->budget_bytes == b->budget_bytes;
}

brim_status brim_planner_figures(brim_planner *p, const brim_variant *variant, uint64_t budget, brim_figures *out)
{
  brim_variant v = *variant;
  v.budget_bytes = v.recompute == BRIM_RECOMPUTE_AUTO ? budget : 0; /* the others do not ask */
  for (size_t i = 0; i < p->count; i++) {
    if (!is_same(&p->plan[i].variant, &v)) continue;
    *out = p->plan[i].figures;
    return BRIM_OK;
  }
  BRIM_TRY(brim_session_figures(p->session, &v, out));
  if (p->count < REMEMBERED) p->count++;
  p->plan[p->next] = (remembered){v, *out};
  p->next = (p->next + 1) % REMEMBERED;
  return BRIM_OK;
}
