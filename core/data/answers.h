/* A sample's label: checks the dataset's value, mixes it, and converts it to the type that the loss reads. */
#ifndef BRIM_DATA_ANSWERS_H
#define BRIM_DATA_ANSWERS_H
#include "data/data.h"

/* [any thread] Converts n floats at the start of `values` to n doubles in place. */
void brim_data_widen(void *values, int64_t n);
/* [any thread] Checks the label that read() wrote, using the sample's raw values. Sets labels of ignored tokens to
 * BRIM_NO_TOKEN. ELOAD. */
brim_status brim_data_check_label(const brim_data *data, const char *split, int64_t index, const void *raw,
                                  void *label);
/* [any thread] Mixes a checked label with a partner's. Both are floats: class probabilities, or real numbers. */
void brim_data_mix_label(const brim_data *data, void *label, const void *partner, float share);
/* [any thread] Converts the real numbers of a checked label, which may be mixed, from float to `real`. */
void brim_data_finish_label(const brim_data *data, enum brim_part part, uint32_t real, void *label);
#endif
