/* The highest rates that a device reaches with its backend: in a large matrix product, and in reading and writing
 * uncached memory. They give lower bounds for the time of operations, and are stored in the device profile. */
#ifndef BRIM_EXEC_CEILING_H
#define BRIM_EXEC_CEILING_H
#include "exec/profile.h"
#include "graph/plan.h"

typedef struct brim_ceiling {
  double flops, bytes; /* per second; 0 if unknown */
} brim_ceiling;

enum brim_ceiling_kind { BRIM_CEILING_PRODUCT, BRIM_CEILING_COPY, BRIM_CEILINGS };

/* [plan] Reads the rates from the profile, for the types of `like`'s activations. */
brim_ceiling brim_ceiling_find(brim_profile *profile, const brim_plan_request *like);
/* [plan] Makes a plan of one program that times a ceiling, on `like`'s backend. */
brim_status brim_ceiling_plan(const brim_plan_request *like, bool on_host, enum brim_ceiling_kind kind,
                              brim_plan **out);
/* [init] Places such a plan, times it and frees the memory. The profile keeps the best rate, as other processes may be
 * running. ENOMEM_DEVICE. */
brim_status brim_ceiling_time(brim_profile *profile, const brim_plan *plan, enum brim_ceiling_kind kind, int device);
/* A lower bound for the seconds that a node's work takes; 0 if unknown. */
double brim_ceiling_seconds(const brim_ceiling *ceiling, brim_cost cost);
#endif
