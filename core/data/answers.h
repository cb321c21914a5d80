/* What a sample is to be answered with, as its dataset wrote it: checked, mixed, and made what the loss takes. */
#ifndef BRIM_DATA_ANSWERS_H
#define BRIM_DATA_ANSWERS_H
#include "data/data.h"

/* [any thread] n floats at the start of `values` become n doubles there. */
void brim_data_widen(void *values, int64_t n);
/* [any thread] Checks the label of a sample as read() left it, with the sample's raw values. Tokens that count for
 * nothing become BRIM_NO_TOKEN. ELOAD. */
brim_status brim_data_check_label(const brim_data *data, const char *split, int64_t index, const void *raw,
                                  void *label);
/* [any thread] Such a label becomes its mix with a partner's, of floats: shares of the classes, or real numbers. */
void brim_data_mix_label(const brim_data *data, void *label, const void *partner, float share);
/* [any thread] Then what is real, of floats so far, becomes `real`. */
void brim_data_finish_label(const brim_data *data, enum brim_part part, uint32_t real, void *label);
#endif
