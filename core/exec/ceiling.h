/* The best that a device does with its own backend: the rate of a large product, and of reading and writing memory that
 * is in no cache. Lower bounds for operations follow from them. Kept in the profile. */
#ifndef BRIM_EXEC_CEILING_H
#define BRIM_EXEC_CEILING_H
#include "exec/profile.h"
#include "graph/plan.h"

typedef struct brim_ceiling {
  double flops, bytes; /* per second; 0 if unknown */
} brim_ceiling;

enum brim_ceiling_kind { BRIM_CEILING_PRODUCT, BRIM_CEILING_COPY, BRIM_CEILINGS };

/* [plan] Reads them from the profile, for the types of `like`'s activations. */
brim_ceiling brim_ceiling_find(brim_profile *profile, const brim_plan_request *like);
/* [plan] Makes a plan of one program that times a ceiling, on `like`'s backend. */
brim_status brim_ceiling_plan(const brim_plan_request *like, bool on_host, enum brim_ceiling_kind kind,
                              brim_plan **out);
/* [init] Places such a plan, times it and frees the memory. The profile keeps the best rate, as other processes may be
 * running. ENOMEM_DEVICE. */
brim_status brim_ceiling_time(brim_profile *profile, const brim_plan *plan, enum brim_ceiling_kind kind, int device);
/* The least seconds that a node's work takes; 0 if unknown. */
double brim_ceiling_seconds(const brim_ceiling *ceiling, brim_cost cost);
#endif
