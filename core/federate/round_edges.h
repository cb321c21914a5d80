/* Hierarchical federated averaging (federate.edge_rounds; Liu et al., Client-Edge-Cloud Hierarchical Federated
 * Learning, ICC 2020): between two steps of the server, each edge makes several rounds with its clients. An edge's
 * model starts as the global model, and each of these rounds replaces it by the mean of its clients' models. The server
 * gets the mean of the edges' models, weighted by the weights of their clients.
 *
 * A rank trains all clients of an edge, one edge after another, with the edge's model in the arena in place of the
 * global model. So a client runs the same programs as in any round, and ranks exchange the same sums as without edge
 * rounds. Internal to core/federate. */
#ifndef BRIM_FEDERATE_ROUND_EDGES_H
#define BRIM_FEDERATE_ROUND_EDGES_H
#include "federate/round.h"

typedef struct brim_edges brim_edges;

/* [init] *out is NULL without edge rounds. ENOMEM_HOST. */
brim_status brim_edges_open(const brim_setup *setup, brim_edges **out);
void brim_edges_close(brim_edges *edges); /* NULL: nothing */
/* [init] Call when a plan has been placed. ENOMEM_HOST. */
brim_status brim_edges_place(brim_federation *federation);
/* [step] Assigns all clients of an edge to the same rank. */
void brim_edges_distribute(brim_federation *federation);
/* [step] Trains this rank's clients, adds the sum of their edges' changes to the server's sums, and leaves the global
 * model in the arena. If it fails, the round must start from the beginning. */
brim_status brim_edges_train(brim_federation *federation);
#endif
