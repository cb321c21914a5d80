/* What a session is made of. Internal to session*.c. */
#ifndef BRIM_SESSION_SESSION_PARTS_H
#define BRIM_SESSION_SESSION_PARTS_H
#include "session/peaks.h"
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
/* Of the configuration, "cpu". */
const char *brim_session_backend_id(const brim_session *session);
/* The device that is configured, or chosen. ENODEVICE, ECONFIG. */
brim_status brim_session_find_device(brim_session *session);
/* What other programs are limited by holds for brim too, where devices are shared and the configuration has no share of
 * its own. */
brim_status brim_session_read_fraction(brim_session *session);
/* The loss, if it goes with the data; of weights there must be one for every class, not all 0. ECONFIG. */
brim_status brim_session_open_loss(brim_session *session);
/* Is a value as it is in the installed configurations, or where they say nothing? Then nobody has chosen it. */
bool brim_session_is_untouched(const brim_yaml *value);
/* What the data asks for, in the place of what nobody has chosen: the configuration is made again, so that the run's
 * folder says what was trained. `status` is of what there is now. */
brim_status brim_session_ask_for(brim_session *session, enum brim_level level, const char *word, const char *because,
                                 brim_status status);
#endif
