/* What a session is made of. Internal to session*.c. */
#ifndef BRIM_SESSION_SESSION_PARTS_H
#define BRIM_SESSION_SESSION_PARTS_H
#include "session/session.h"

/* Of several ranks, none cuts larger micro-batches than its share; nor smaller ones than the least that can be planned
 * if it has none. */
int64_t brim_session_limit_batch(const brim_session *session, int64_t batch);
/* How training goes in micro-batches of `batch` samples. One rank makes whole ones of a step, also if they divide no
 * effective batch: `brim plan` shows some of those. */
brim_order brim_session_order_of(const brim_session *session, int64_t batch);
/* Samples that are evaluated at a time: as configured, or a micro-batch's. */
int64_t brim_session_eval_batch(const brim_session *session, int64_t batch);
/* Ranks that only add up what the others have computed are seldom what somebody wants. */
void brim_session_warn_of_idle_ranks(const brim_session *session);
/* Precisions that the backend keeps activations in, whatever the updates are: bit 1 << enum brim_precision of each. */
uint32_t brim_session_backend_precisions(const brim_session *session);
/* A look at the model: does its result depend on norm groups at all? */
brim_status brim_session_find_norm_group(brim_session *session);
/* The graph of evaluating `batch` samples. */
brim_status brim_session_graph(const brim_session *session, int64_t batch, brim_graph **out);
/* Describes the data: as its files are, which must then be as the run keeps them, or, of a session that does not read
 * them, by what the run keeps. */
brim_status brim_session_describe_data(brim_session *session, const brim_plugin *plugin);
/* What follows from the data's shape: how training is cut. */
brim_status brim_session_follow_data(brim_session *session);
#endif
