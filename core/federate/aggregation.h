/* Calls the configured aggregator (brim/aggregator.h): on a guarded thread (memory/plugin_call.h) if it comes from a
 * plugin's file, else directly. The weights of a round are scaled by a power of two such that they add up to at most 1,
 * which keeps the sums of updates exact (fold in brim/ops.h). */
#ifndef BRIM_FEDERATE_AGGREGATION_H
#define BRIM_FEDERATE_AGGREGATION_H
#include "brim/aggregator.h"
#include "config/config.h"

typedef struct brim_aggregation brim_aggregation;

/* [init] The choice must outlive the result; NULL: fedavg. ENOMEM_HOST. */
brim_status brim_aggregation_open(const brim_config_choice *choice, brim_aggregation **out);
void brim_aggregation_close(brim_aggregation *aggregation); /* NULL: nothing */
/* [step] Computes the weights of [count] clients that will train. EPLUGIN, with a message that names the aggregator, if
 * it fails, or if a weight is negative or not finite, or all are 0. For aggregators of the core, ENUMERIC instead. The
 * same holds for the functions below. */
brim_status brim_aggregation_weigh(brim_aggregation *aggregation, const brim_arrival *arrival, int64_t count,
                                   double *weight);
/* [step] start begins a round's divisor; add adds an arrived client to it, with the client's `weight` from
 * brim_aggregation_weigh. Call add in the order of selection. */
void brim_aggregation_start(brim_aggregation *aggregation);
brim_status brim_aggregation_add(brim_aggregation *aggregation, const brim_arrival *arrival, double weight);
/* [step] For an aggregator with merge: calls look if out is NULL, else merge, which writes `values` results to out.
 * EPLUGIN, ENUMERIC if a result is not finite, and errors of the aggregator. */
brim_status brim_aggregation_merge(brim_aggregation *aggregation, const brim_updates *block, double *out);
/* Whether the aggregator sees all updates of a round at once (merge), and whether it has a first pass over them (look).
 */
bool brim_aggregation_merges(const brim_aggregation *aggregation);
bool brim_aggregation_looks(const brim_aggregation *aggregation);
/* Whether a call hangs, so that the aggregator may still use its memory. */
bool brim_aggregation_is_lost(const brim_aggregation *aggregation);
/* [step] Computes the divisor of the sum of weighted updates; an error unless it is finite and above 0. */
brim_status brim_aggregation_divisor(const brim_aggregation *aggregation, double *out);
#endif
