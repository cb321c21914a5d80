/* Fuzzes the reader of CIFAR's binary files: records with labels in range, or an error. The first byte selects the
 * version; inputs are short, so each byte stands for a record: the pixels after the labels are filled in. */
#include <string.h>

#include "../../plugins/dataset/cifar/records.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_cifar: %s\n", what);
  abort();
}

/* Labels of up to 8 records, then the rest of the input unchanged. */
static size_t make_records(const uint8_t *data, size_t size, int labels, uint8_t *out)
{
  size_t used = 0, at = 0;
  const size_t records = size > 0 ? data[at++] % 8 : 0;
  for (size_t i = 0; i < records && at + (size_t)labels <= size; i++) {
    memcpy(out + used, data + at, (size_t)labels);
    memset(out + used + labels, (int)i, CIFAR_PIXEL_BYTES);
    at += (size_t)labels;
    used += (size_t)labels + CIFAR_PIXEL_BYTES;
  }
  const size_t rest = size - at < 4096 ? size - at : 4096;
  if (at < size && data[at] & 1) { /* or not */
    memcpy(out + used, data + at, rest);
    used += rest;
  }
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static uint8_t bytes[8 * (CIFAR_PIXEL_BYTES + 2) + 4096];
  const int classes[] = {20, 100}, labels = size > 0 && data[0] & 1 ? 2 : 1;
  char name[32];
  if (size < 1) return 0;
  const size_t used = make_records(data + 1, size - 1, labels, bytes);
  const int fd = memory_file(bytes, used, name);
  cifar_records records = {0};
  int64_t count = -1;
  const brim_status counted = cifar_records_count(name, labels, &count);
  for (int times = 1; times <= 2; times++) {
    const brim_status status = cifar_records_add(name, labels, classes, &records);
    check(status == BRIM_OK || brim_error_text()[0] != '\0', "refused without a text");
    check(status != BRIM_OK || counted == BRIM_OK, "records of a file that has none");
    check(records.count == (status == BRIM_OK ? times * count : 0), "another count");
  }
  for (int64_t i = 0; i < records.count; i++)
    for (int k = 0; k < labels; k++)
      check(records.bytes[i * (labels + CIFAR_PIXEL_BYTES) + k] < classes[k], "label out of range");
  cifar_records_free(&records);
  close(fd);
  return 0;
}
