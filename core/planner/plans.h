/* Remembers the last few plans, because a command asks for the same plan several times: before it opens the data, to
 * check it against the device, to predict host memory and times, and to print it. A plan is a function of its inputs:
 * the setup, the device, and the choice. */
#ifndef BRIM_PLANNER_PLANS_H
#define BRIM_PLANNER_PLANS_H
#include "graph/plan.h"

typedef struct brim_plans brim_plans;

brim_plans *brim_plans_create(void);
/* Forgets all plans; plans that a caller still holds stay valid. */
void brim_plans_clear(brim_plans *plans);
void brim_plans_free(brim_plans *plans);
/* [plan] Returns a remembered plan that has the same inputs, or makes one and remembers it; the caller frees it with
 * brim_plan_free. `precision` (enum brim_precision) must be given because the request does not contain it. `plans`
 * NULL: always makes one. Errors as for brim_plan_create. */
brim_status brim_plans_get(brim_plans *plans, const brim_plan_request *request, int32_t precision, brim_plan **out);

/* A plan that brim_plans_get will be asked for. */
typedef struct brim_plans_next {
  brim_plan_request request;
  int32_t precision;
} brim_plans_next;
#define BRIM_PLANS_NEXT 3 /* a plan of an 80-layer language model takes 20 MB */
/* [plan] Makes the plans of the first BRIM_PLANS_NEXT requests that have none yet, in several threads, and remembers
 * them until they are asked for, or until this is called without their requests. Leaves out failures, so that
 * brim_plans_get reports them. */
void brim_plans_make_next(brim_plans *plans, const brim_plans_next *next, size_t count);
#endif
