/* Fuzzes the reader of lists in MATLAB files: numbers in range, or an error. */
#include "../../plugins/dataset/flowers102/mat_list.h"
#include "memory_file.h"

#define MOST 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_mat: %s\n", what);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char *const variables[] = {"labels", "trnid"};
  char name[32];
  const int fd = memory_file(data, size, name);
  for (size_t v = 0; v < 2; v++) {
    mat_list list;
    const brim_status status = mat_list_read(name, variables[v], MOST, &list);
    check(status == BRIM_OK ? list.count > 0 : brim_error_text()[0] != '\0' && !list.item, "neither read nor refused");
    for (size_t i = 0; i < list.count; i++) check(list.item[i] >= 1 && list.item[i] <= MOST, "a number out of range");
    mat_list_free(&list);
  }
  close(fd);
  return 0;
}
