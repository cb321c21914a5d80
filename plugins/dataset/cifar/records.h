/* The binary version of CIFAR-10 and CIFAR-100: files of records, each the labels, a byte each, and 3072 bytes of
 * pixels: 32 rows of 32 of red, then green, then blue. */
#ifndef CIFAR_RECORDS_H
#define CIFAR_RECORDS_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define CIFAR_PIXEL_BYTES 3072

typedef struct cifar_records {
  uint8_t *bytes; /* owned: [count, labels + CIFAR_PIXEL_BYTES] */
  int64_t count;
} cifar_records;

/* [init] How many records of `labels` labels and pixels a file has, by its size. ELOAD if it is no whole number. */
brim_status cifar_records_count(const char *path, int labels, int64_t *out);
/* [init] Adds a file's records behind those that are there. classes: how many there are of each label. ELOAD says which
 * record is wrong; ENOMEM_HOST. On failure `records` is as it was. */
brim_status cifar_records_add(const char *path, int labels, const int *classes, cifar_records *records);
void cifar_records_free(cifar_records *records);
#endif
