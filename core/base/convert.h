/* Numbers of one type as numbers of another: what files keep them in, and what the graph has. */
#ifndef BRIM_BASE_CONVERT_H
#define BRIM_BASE_CONVERT_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/tensor.h"

/* Is it a type of real numbers: F64, F32, BF16, F16? */
bool brim_dtype_is_real(uint32_t dtype);
/* [any thread] `count` numbers. Of the same type they are copied as they are; else both are types of real numbers, and
 * what does not fit is rounded to the nearest, of two to the even one, or becomes infinite. `from` need not be aligned.
 */
void brim_convert(uint32_t to_dtype, void *to, uint32_t from_dtype, const void *from, size_t count);
/* [any thread] Number `i` of values of a type of real numbers. */
double brim_value_at(uint32_t dtype, const void *values, int64_t i);
/* [any thread] Is none of them infinite or not a number? Of types of real numbers, aligned. */
bool brim_all_finite(uint32_t dtype, const void *values, size_t count);
#endif
