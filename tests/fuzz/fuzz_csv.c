/* Fuzzes the CSV reader and the data set: every input gives samples of finite numbers or an error. Inputs become a file
 * in memory. The first two bytes choose the settings: separator, header line, classes or numbers, rows, windows or
 * groups, and the treatment of missing values. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../plugins/dataset/csv/set.h"

#define INPUT_BYTES_MAX ((size_t)1 << 20)
#define SAMPLE_VALUES_MAX 4096
#define SAMPLES_READ_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_csv: %s\n", what);
  abort();
}

/* The settings; columns by their numbers if there is no header line, else by the corpus's names. */
static csv_params params_of(const uint8_t *byte, const char *path)
{
  static const char *const numbers[] = {"1"}, *const names[] = {"y"};
  const int header = byte[0] & 1, values = byte[0] & 2, group = byte[0] & 4;
  csv_params p = {.path = path,
                  .train = "",
                  .test = "",
                  .separator = (byte[0] >> 3) % 5,
                  .header = header,
                  .label = values   ? ""
                           : header ? "k"
                                    : "2",
                  .group = !group   ? ""
                           : header ? "id"
                                    : "3",
                  .client = !group || !(byte[1] & 2) ? ""
                            : header                 ? "id"
                                                     : "3",
                  .test_fraction = byte[1] & 1 ? 0.3 : 0,
                  .sequence = byte[1] >> 1 & 3,
                  .stride = 1,
                  .horizon = -1,
                  .pad = byte[1] >> 3 & 1,
                  .cut = byte[1] >> 4 & 1,
                  .fill = (byte[1] >> 5) % 3,
                  .standardise = byte[1] >> 7};
  if (values) p.targets = (brim_names){header ? names : numbers, 1};
  return p;
}

static void check_part(const csv_set *s, const csv_part *part)
{
  static float values[SAMPLE_VALUES_MAX], target[1];
  const int64_t count = (s->length > 0 ? s->length : 1) * s->chosen.features;
  if (!part->table || count > SAMPLE_VALUES_MAX) return;
  for (int64_t i = 0; i < part->count; i += 1 + part->count / SAMPLES_READ_MAX) {
    int32_t label = -1;
    csv_set_sample(s, part, i, values, s->chosen.targets > 0 ? (void *)target : (void *)&label);
    for (int64_t k = 0; k < count; k++) check(isfinite(values[k]), "a value that is not finite");
    check(!s->chosen.client[0] || csv_set_client(s, part, i) >= 0, "a sample of no client");
    check(s->chosen.targets > 0 ? isfinite(target[0]) : label >= 0 && label < s->classes.count, "an impossible answer");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 2 || size > INPUT_BYTES_MAX) return 0;
  char path[64];
  csv_set set;
  const int fd = memfd_create("fuzz_csv", MFD_CLOEXEC);
  check(fd >= 0 && write(fd, data + 2, size - 2) == (ssize_t)(size - 2), "no file in memory");
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const csv_params params = params_of(data, path);
  const brim_status status = csv_set_open(&params, &set);
  if (status != BRIM_OK) {
    check(brim_error_text()[0] != '\0', "refused without a text");
    check(!set.table[0].feature && !set.mean, "refused, but something is left");
  } else {
    check(set.train.count > 0, "no samples");
    check_part(&set, &set.train);
    check_part(&set, &set.test);
  }
  csv_set_free(&set);
  close(fd);
  return 0;
}
