/* The binary version of CIFAR-10 and CIFAR-100: files of records. A record has labels of one byte each and 3072 bytes
 * of pixels: 32 rows of 32 red values, then green, then blue values. */
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

/* [init] Computes the number of records of a file from its size. Returns ELOAD if it is not a whole number. */
brim_status cifar_records_count(const char *path, int labels, int64_t *out);
/* [init] Appends the records of a file. classes: the number of classes of each label. Returns ELOAD, naming the bad
 * record, or ENOMEM_HOST; `records` is then unchanged. */
brim_status cifar_records_add(const char *path, int labels, const int *classes, cifar_records *records);
void cifar_records_free(cifar_records *records);
#endif
