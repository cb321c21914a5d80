/* Features of a frozen backbone, for models that train nothing before their features (BRIM_WRAPS_FEATURES). brim
 * computes them once per sample and stores them in a file, which training then uses as its dataset. A hash identifies
 * the inputs of a file: the backbone's plugin, parameters and weights, the dataset with its options and files, the
 * preparation of samples, precision and backend. Samples are not augmented. */
#ifndef BRIM_SETUP_FEATURES_H
#define BRIM_SETUP_FEATURES_H
#include "setup/setup.h"
#include "setup/setup_weights.h"
#include "store/feature_file.h"

struct brim_feature_set {
  brim_feature_file file; /* not mapped: the features are not computed yet, or the command only makes plans */
  brim_dataset_info train, test;
  brim_settings settings;     /* the setup's settings, without augmentation and preparation of samples */
  brim_settings raw_settings; /* the setup's settings without augmentation only */
  brim_setup raw;             /* the setup that computes the features, with the original data */
  brim_setup_weights frozen;  /* the backbone's weights from model.weights */
  uint64_t weights;           /* hash of the backbone's weights; 0: only the shape is known */
};

/* [init] Call at the end of opening a setup. If its model is trained on features, they replace the data. If the setup
 * reads data, looks for a file with the features; drive/extract.h computes them. Does nothing for other models, and for
 * those that are evaluated as a whole. ECONFIG, EIO. */
brim_status brim_features_open(brim_setup *setup);
/* May be NULL. */
void brim_features_close(brim_feature_set *set);
/* [init] Uses the file at this path if it contains the features. */
bool brim_features_find(brim_feature_set *set, const char *path);
#endif
