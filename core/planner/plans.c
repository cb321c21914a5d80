#include "planner/plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/parallel.h"
#include "brim/host.h"

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
  kept next[BRIM_PLANS_NEXT]; /* not asked for yet */
  uint64_t now;
};

brim_plans *brim_plans_create(void)
{
  return brim_xcalloc(1, sizeof(brim_plans));
}

static void forget(kept *k, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    brim_plan_free(k[i].plan);
    k[i] = (kept){0};
  }
}

void brim_plans_clear(brim_plans *p)
{
  if (!p) return;
  forget(p->item, KEPT);
  forget(p->next, BRIM_PLANS_NEXT);
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

static kept *find(kept *k, size_t count, const brim_plan_request *request, int32_t precision)
{
  for (size_t i = 0; i < count; i++)
    if (is_same(&k[i], request, precision)) return &k[i];
  return NULL;
}

brim_status brim_plans_get(brim_plans *p, const brim_plan_request *request, int32_t precision, brim_plan **out)
{
  if (!p) return brim_plan_create(request, out);
  p->now++;
  kept *k = find(p->item, KEPT, request, precision);
  if (k) {
    k->used = p->now;
    *out = brim_plan_share(k->plan);
    return BRIM_OK;
  }
  kept *next = find(p->next, BRIM_PLANS_NEXT, request, precision);
  if (next) {
    *out = next->plan;
    *next = (kept){0};
  } else {
    BRIM_TRY(brim_plan_create(request, out));
  }
  k = oldest(p);
  brim_plan_free(k->plan);
  *k = (kept){brim_plan_share(*out), precision, p->now};
  return BRIM_OK;
}

/* ---- plans that will be asked for ---- */

typedef struct making {
  const brim_plans_next *next[BRIM_PLANS_NEXT];
  kept *into[BRIM_PLANS_NEXT];
} making;

static void make_one(void *context, int64_t task)
{
  const making *m = context;
  const brim_plans_next *next = m->next[task];
  brim_plan *plan = NULL;
  if (brim_plan_create(&next->request, &plan) == BRIM_OK)
    *m->into[task] = (kept){plan, next->precision, 0};
  else
    brim_error_clear(); /* if the plan is needed, brim makes it again and gets the error then */
}

void brim_plans_make_next(brim_plans *p, const brim_plans_next *next, size_t count)
{
  making m = {.into = {NULL}};
  int64_t missing = 0, room = 0;
  for (kept *k = p->next; k < p->next + BRIM_PLANS_NEXT; k++) {
    bool is_wanted = false;
    for (size_t i = 0; i < count; i++) is_wanted = is_wanted || is_same(k, &next[i].request, next[i].precision);
    if (is_wanted) continue;
    forget(k, 1);
    m.into[room++] = k;
  }
  for (size_t i = 0; i < count && missing < room; i++)
    if (!find(p->item, KEPT, &next[i].request, next[i].precision) &&
        !find(p->next, BRIM_PLANS_NEXT, &next[i].request, next[i].precision))
      m.next[missing++] = &next[i];
  const int32_t threads = brim_host_threads();
  if (missing > 1 && threads > 1) brim_in_parallel("brim-plan", threads, missing, make_one, &m);
}
