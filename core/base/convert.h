/* Converts numbers between types: those in files and those of the graph. */
#ifndef BRIM_BASE_CONVERT_H
#define BRIM_BASE_CONVERT_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/tensor.h"

/* Whether this is a type of real numbers: F64, F32, BF16 or F16. */
bool brim_dtype_is_real(uint32_t dtype);
/* [any thread] Converts `count` numbers. Equal types are copied; otherwise both must be types of real numbers, and
 * values that do not fit are rounded to the nearest, ties to even, or become infinite. `from` need not be aligned. */
void brim_convert(uint32_t to_dtype, void *to, uint32_t from_dtype, const void *from, size_t count);
/* [any thread] Element `i` of values of a type of real numbers. */
double brim_value_at(uint32_t dtype, const void *values, int64_t i);
/* [any thread] Whether all values are finite. For types of real numbers; `values` must be aligned. */
bool brim_all_finite(uint32_t dtype, const void *values, size_t count);
#endif
