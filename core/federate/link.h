/* A connection of the simulated world, and the time to send over it. Internal to core/federate. */
#ifndef BRIM_FEDERATE_LINK_H
#define BRIM_FEDERATE_LINK_H
#include <math.h>

#include "config/config.h"

typedef struct brim_link {
  double latency, jitter; /* seconds */
  double mbit;            /* INFINITY: transfers take no time */
  double arrives;         /* the part of the bytes that is not lost */
} brim_link;

/* One of the connections in the lists, chosen by a number in [0, 1). */
static inline brim_link brim_link_of(const brim_network_settings *n, double chosen)
{
  if (n->latency_ms.count == 0) return (brim_link){0, 0, INFINITY, 1};
  const size_t k = (size_t)((double)n->latency_ms.count * chosen);
  return (brim_link){1e-3 * n->latency_ms.item[k], 1e-3 * n->jitter_ms.item[k], n->bandwidth_mbit.item[k],
                     1 - 1e-2 * n->loss_percent.item[k]};
}

/* Computes the time to send. `channel`: a factor on the bandwidth; `delay`: random part of the latency, from -1 to
 * 1. */
static inline double brim_link_seconds(const brim_link *link, double channel, int64_t bytes, double delay)
{
  const double latency = link->latency + link->jitter * delay;
  return (latency > 0 ? latency : 0) + (double)bytes / (1e6 / 8 * link->mbit * channel * link->arrives);
}
#endif
