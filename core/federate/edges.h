/* Edges between the clients and the server of the simulated world (federate.edges), as in hierarchical federated
 * learning (Liu et al., Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020). The server sends the model to the
 * edges, an edge sends it to its clients, adds up their updates, and sends the sum to the server. This file computes
 * only time and bytes; round_edges.h has the rounds of an edge. Internal to core/federate. */
#ifndef BRIM_FEDERATE_EDGES_H
#define BRIM_FEDERATE_EDGES_H
#include "federate/world.h"

/* The seconds for the model from the server to an edge, and for a sum of updates back; both 0 without edges. */
typedef struct brim_edge_trip {
  double down, up;
} brim_edge_trip;

/* The transfers of a client's edge in an attempt at a round; `jitters`: with random latencies. `bytes`: in each
 * direction. */
brim_edge_trip brim_edge_trip_of(const brim_setup *setup, const brim_moment *moment, int64_t client, int64_t bytes,
                                 bool jitters);
/* Counts the edges of [count] clients; with `fate`, only the edges of clients that arrive. 0 without edges; `seen`:
 * memory for federate.edges. */
int64_t brim_edges_count(const brim_setup *setup, const int64_t *client, int64_t count, const brim_fate *fate,
                         uint8_t *seen);
#endif
