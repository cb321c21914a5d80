/* Features of a frozen backbone, computed once for every sample and kept in a file, which training then has for its
 * data: of models that train nothing in front of them (BRIM_WRAPS_FEATURES). A file belongs to what it was made of, by
 * a hash: the backbone's plugin, parameters and weights, the data set with its options and files, how samples are
 * prepared, precision and backend. Features are of plain samples. */
#ifndef BRIM_SETUP_FEATURES_H
#define BRIM_SETUP_FEATURES_H
#include "setup/setup.h"
#include "setup/setup_weights.h"
#include "store/feature_file.h"

struct brim_feature_set {
  brim_feature_file file; /* of no map: its features are not computed yet, or only plans are made */
  brim_dataset_info train, test;
  brim_settings settings;     /* the setup's, without augmentation and what prepares samples */
  brim_settings raw_settings; /* only without augmentation */
  brim_setup raw;             /* the setup that they are computed with: as it was before they took its data's place */
  brim_setup_weights frozen;  /* that the backbone has of model.weights */
  uint64_t weights;           /* hash of the backbone's; 0: only the shape is known */
};

/* [init] Of a setup that is otherwise open: if its model is trained on features, puts them in the place of the data.
 * Where the setup reads data a file that has them is looked for; they are computed by drive/extract.h. Other models,
 * and those that are evaluated whole: nothing. ECONFIG, EIO. */
brim_status brim_features_open(brim_setup *setup);
/* NULL is a no-op. */
void brim_features_close(brim_feature_set *set);
/* [init] Takes them from a file that has them. */
bool brim_features_find(brim_feature_set *set, const char *path);
#endif
