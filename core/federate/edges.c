/* See edges.h. */
#include "federate/edges.h"

#include <string.h>

#include "federate/link.h"

/* A stream of the world's random numbers; world.c uses lower ones. The bits above it contain the attempt. */
#define EDGE 8
#define NUMBERED(stream, number) ((uint32_t)(number) << 4 | (uint32_t)(stream))

static int64_t edge_of(const brim_setup *setup, int64_t client)
{
  return client % setup->settings->federate.edges;
}

static double uniform(uint32_t x)
{
  return ((double)x + 0.5) * (1.0 / 4294967296.0);
}

brim_edge_trip brim_edge_trip_of(const brim_setup *setup, const brim_moment *m, int64_t client, int64_t bytes,
                                 bool jitters)
{
  const brim_settings *s = setup->settings;
  if (s->federate.edges == 0) return (brim_edge_trip){0, 0};
  /* The attempt changes the delays, but not the network. */
  const uint64_t seed = (uint64_t)s->seed, edge = (uint64_t)edge_of(setup, client);
  const brim_philox r = brim_random4(seed, BRIM_STREAM_WORLD, NUMBERED(EDGE, m->attempt), edge, (uint32_t)m->round),
                    first = brim_random4(seed, BRIM_STREAM_WORLD, EDGE, edge, (uint32_t)m->round);
  const brim_link link = brim_link_of(&s->edge_network, uniform(first.v[2]));
  return (brim_edge_trip){brim_link_seconds(&link, 1, bytes, jitters ? 2 * uniform(r.v[0]) - 1 : 0),
                          brim_link_seconds(&link, 1, bytes, jitters ? 2 * uniform(r.v[1]) - 1 : 0)};
}

int64_t brim_edges_count(const brim_setup *setup, const int64_t *client, int64_t count, const brim_fate *fate,
                         uint8_t *seen)
{
  const int64_t edges = setup->settings->federate.edges;
  int64_t found = 0;
  if (edges == 0) return 0;
  memset(seen, 0, (size_t)edges);
  for (int64_t i = 0; i < count; i++) {
    uint8_t *of_client = &seen[edge_of(setup, client[i])];
    if (*of_client || (fate && fate[i].outcome != BRIM_OUTCOME_ARRIVES)) continue;
    *of_client = 1;
    found++;
  }
  return found;
}
