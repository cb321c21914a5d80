/* What a sample is to be answered with, as its dataset wrote it: checked, and made what the loss takes. */
#ifndef BRIM_DATA_ANSWERS_H
#define BRIM_DATA_ANSWERS_H
#include "data/data.h"

/* [any thread] n floats at the start of `values` become n doubles there. */
void brim_data_widen(void *values, int64_t n);
/* [any thread] The label of a sample as read() left it, with the sample's raw values: a class, or tokens are checked;
 * real numbers become `real`. ELOAD. */
brim_status brim_data_take_label(const brim_data *data, const char *split, int64_t index, uint32_t real,
                                 const void *raw, void *label);
#endif
