/* Fuzzes the lists of CUB-200-2011: rows with a text or finite numbers, or an error. The first byte sets the number of
 * numbers. */
#include <math.h>
#include <string.h>

#include "../../plugins/dataset/cub200/table.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_cub200: %s\n", what);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char name[32];
  if (size < 1) return 0;
  const int numbers = data[0] % (CUB200_NUMBERS_MAX + 1), fd = memory_file(data + 1, size - 1, name);
  cub200_table t;
  const brim_status status = cub200_table_read(name, numbers, &t);
  check(status == BRIM_OK ? t.count > 0 : brim_error_text()[0] != '\0' && !t.row && !t.bytes,
        "neither read nor refused");
  for (size_t i = 0; i < t.count; i++) {
    check((numbers == 0) == (t.row[i].text != NULL), "text instead of numbers");
    check(numbers > 0 || strlen(t.row[i].text) < size, "a text that does not end");
    for (int k = 0; k < numbers; k++) check(isfinite(t.row[i].number[k]), "a number that is not finite");
  }
  cub200_table_free(&t);
  close(fd);
  return 0;
}
