/* Features of a frozen backbone, computed once for every sample and kept in a file, which training then has for its
 * data: of models that train nothing in front of them (BRIM_WRAPS_FEATURES). A file belongs to what it was made of, by
 * a hash: the backbone's plugin, parameters and weights, the data set with its options and files, how samples are
 * prepared, precision and backend. Features are of plain samples. */
#ifndef BRIM_SESSION_FEATURES_H
#define BRIM_SESSION_FEATURES_H
#include "session/session.h"
#include "session/session_weights.h"

/* [init] Of a session that is otherwise open: if its model is trained on features, puts them in the place of the data.
 * Where the session reads data they are computed, unless a file has them, on the session's device; else only their
 * shape is found. Other models, and those that are evaluated whole: nothing. ECONFIG, EIO, and what computing can
 * return. */
brim_status brim_features_open(brim_session *session);
/* NULL is a no-op. */
void brim_features_close(brim_feature_set *set);
/* The hash of the backbone's weights; 0: only the shape is known. */
uint64_t brim_features_weights(const brim_feature_set *set);
/* The weights of model.weights that the backbone has; the set's own. */
const brim_session_weights *brim_features_frozen(const brim_feature_set *set);
/* Bytes of the device's memory that computing them takes, before the plan of training is placed; 0: they are there. */
uint64_t brim_features_peak(const brim_feature_set *set);
#endif
