/* Fuzzes the safetensors reader: an accepted file must be readable to its last byte, every tensor be found by its name,
 * and its table be sorted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/safetensors.h"

static volatile uint64_t sink; /* so that the reads are not optimized away */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A sum of the data, so that a sanitizer detects a read outside of `bytes`. */
static uint64_t read_all(const brim_safetensor *tensor)
{
  const size_t count = (size_t)brim_shape_count(&tensor->shape) * brim_dtype_bytes(tensor->dtype);
  const uint8_t *data = tensor->data;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += data[i];
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  brim_safetensors *file = NULL;
  if (brim_safetensors_parse(bytes, size, "input", &file) != BRIM_OK) {
    if (brim_error_text()[0] == '\0') abort();
    return 0;
  }
  const uint8_t *end = NULL;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const brim_safetensor *tensor = brim_safetensors_at(file, i);
    if (brim_safetensors_find(file, tensor->name) != tensor) abort();
    if (end && (const uint8_t *)tensor->data < end) abort();
    end = tensor->data;
    sink += read_all(tensor);
  }
  brim_safetensors_close(file);
  return 0;
}
