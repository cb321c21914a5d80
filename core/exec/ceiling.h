/* What a device does at most, as its own backend does it: the rate of a large product, and that of reading and writing
 * memory that is in no cache. What an operation takes at least follows from them. Kept in the profile.
 */
#ifndef BRIM_EXEC_CEILING_H
#define BRIM_EXEC_CEILING_H
#include "exec/profile.h"
#include "graph/plan.h"

typedef struct brim_ceiling {
  double flops, bytes; /* in a second; 0: not known */
} brim_ceiling;

enum brim_ceiling_kind { BRIM_CEILING_PRODUCT, BRIM_CEILING_COPY, BRIM_CEILINGS };

/* [plan] From the profile, in the types of `like`'s activations. */
brim_ceiling brim_ceiling_find(brim_profile *profile, const brim_plan_request *like);
/* [plan] A plan of one program by which a ceiling is timed, on `like`'s backend. */
brim_status brim_ceiling_plan(const brim_plan_request *like, bool on_host, enum brim_ceiling_kind kind,
                              brim_plan **out);
/* [init] Places such a plan, times, and gives the memory back. The profile keeps what was reached at best: others may
 * be at work here. ENOMEM_DEVICE. */
brim_status brim_ceiling_time(brim_profile *profile, const brim_plan *plan, enum brim_ceiling_kind kind, int device);
/* Seconds that a node's work takes at least; 0: not known. */
double brim_ceiling_seconds(const brim_ceiling *ceiling, brim_cost cost);
#endif
