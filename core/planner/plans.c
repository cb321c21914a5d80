#include "planner/plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Plans to remember: the chosen one, and the last that was compared with it. A plan of an 80-layer language model takes
 * 20 MB. */
#define KEPT 2

typedef struct kept {
  brim_plan *plan; /* NULL: free */
  int32_t precision;
  uint64_t used; /* when it was last requested */
} kept;

struct brim_plans {
  kept item[KEPT];
  uint64_t now;
};

brim_plans *brim_plans_create(void)
{
  return brim_xcalloc(1, sizeof(brim_plans));
}

void brim_plans_clear(brim_plans *p)
{
  for (size_t i = 0; p && i < KEPT; i++) {
    brim_plan_free(p->item[i].plan);
    p->item[i] = (kept){0};
  }
}

void brim_plans_free(brim_plans *p)
{
  brim_plans_clear(p);
  free(p);
}

static bool has_shapes(const brim_plan_request *a, const brim_plan_request *b)
{
  bool same = a->shape_count == b->shape_count;
  for (size_t i = 0; same && i < a->shape_count; i++)
    same = a->shape[i].kind == b->shape[i].kind && a->shape[i].batch == b->shape[i].batch &&
           a->shape[i].tokens == b->shape[i].tokens;
  return same;
}

/* Compares only what differs between requests: the rest depends on the setup and the device, and if these change the
 * cache is cleared. */
static bool is_same(const kept *k, const brim_plan_request *r, int32_t precision)
{
  return k->plan && k->precision == precision && k->plan->request.recompute == r->recompute &&
         has_shapes(&k->plan->request, r) && brim_plan_is_same_within(k->plan, r->budget_bytes);
}

/* Returns the entry to replace: the one that was unused for longest, preferably of a plan that only this cache
 * holds. */
static kept *oldest(brim_plans *p)
{
  kept *out = NULL;
  for (kept *k = p->item; k < p->item + KEPT; k++) {
    if (!k->plan) return k;
    const bool held = brim_plan_is_shared(k->plan), other_held = out && brim_plan_is_shared(out->plan);
    if (!out || held < other_held || (held == other_held && k->used < out->used)) out = k;
  }
  return out;
}

brim_status brim_plans_get(brim_plans *p, const brim_plan_request *request, int32_t precision, brim_plan **out)
{
  if (!p) return brim_plan_create(request, out);
  p->now++;
  for (kept *k = p->item; k < p->item + KEPT; k++) {
    if (!is_same(k, request, precision)) continue;
    k->used = p->now;
    *out = brim_plan_share(k->plan);
    return BRIM_OK;
  }
  BRIM_TRY(brim_plan_create(request, out));
  kept *k = oldest(p);
  brim_plan_free(k->plan);
  *k = (kept){brim_plan_share(*out), precision, p->now};
  return BRIM_OK;
}
