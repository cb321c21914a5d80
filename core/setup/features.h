/* Features of a frozen backbone, computed once for every sample and kept in a file, which training then has for its
 * data: of models that train nothing in front of them (BRIM_WRAPS_FEATURES). A file belongs to what it was made of, by
 * a hash: the backbone's plugin, parameters and weights, the data set with its options and files, how samples are
 * prepared, precision and backend. Features are of plain samples. */
#ifndef BRIM_SETUP_FEATURES_H
#define BRIM_SETUP_FEATURES_H
#include "setup/setup.h"
#include "setup/setup_weights.h"
#include "store/feature_file.h"

/* [init] Of a setup that is otherwise open: if its model is trained on features, puts them in the place of the data.
 * Where the setup reads data a file that has them is looked for; they are computed by drive/extract.h. Other models,
 * and those that are evaluated whole: nothing. ECONFIG, EIO. */
brim_status brim_features_open(brim_setup *setup);
/* NULL is a no-op. */
void brim_features_close(brim_feature_set *set);
/* The setup that they are computed with: the same but for its data, which are the samples. */
brim_setup *brim_features_raw(brim_feature_set *set);
const brim_feature_shape *brim_features_shape(const brim_feature_set *set);
/* Were they found in a file? */
bool brim_features_are_there(const brim_feature_set *set);
/* [init] Takes them from a file that has them. */
bool brim_features_find(brim_feature_set *set, const char *path);
/* The hash of the backbone's weights; 0: only the shape is known. */
uint64_t brim_features_weights(const brim_feature_set *set);
/* The weights of model.weights that the backbone has; the set's own. */
const brim_setup_weights *brim_features_frozen(const brim_feature_set *set);
#endif
