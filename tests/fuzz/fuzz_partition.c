/* Fuzzes partition files: every file is refused with an error and its place, or gives every client its own samples. A
 * partition that is read and written has the same hash when read again. */
#include <string.h>

#include "brim/random.h"
#include "data/partition.h"
#include "fuzz/memory_file.h"

#define INPUT_BYTES_MAX ((size_t)1 << 16)
#define SPLIT 40 /* samples, some of which are kept for validation */
#define TRAINING 32
#define CLIENTS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_partition: %s: %s\n", what, brim_error_text());
  abort();
}

static void check_samples(const brim_partition *p)
{
  bool seen[SPLIT] = {false};
  int64_t count = 0;
  for (int64_t k = 0; k < CLIENTS; k++) {
    check(brim_partition_count(p, k) > 0, "a client without a sample");
    for (int64_t i = 0; i < brim_partition_count(p, k); i++, count++) {
      const int64_t sample = brim_partition_at(p, k, i);
      check(sample >= 0 && sample < SPLIT && !seen[sample], "a sample that is not the client's own");
      seen[sample] = true;
    }
  }
  check(count == p->samples && count <= TRAINING, "the clients' samples are not all samples");
}

static void read_again(brim_data *made, brim_settings *settings, const brim_partition *p)
{
  char name[32];
  brim_partition again;
  const int fd = memory_file((const uint8_t *)"", 0, name);
  settings->partition.path = name;
  check(brim_partition_write(made, p, name) == BRIM_OK, "it cannot be written");
  check(brim_partition_make(made, &again) == BRIM_OK, "a written partition cannot be read");
  check(brim_partition_hash(p) == brim_partition_hash(&again), "it is another one when it is read again");
  brim_partition_release(&again);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char name[32];
  brim_partition p;
  if (size > INPUT_BYTES_MAX) return 0;
  const int fd = memory_file(data, size, name);
  brim_settings settings = {.total_clients = CLIENTS,
                            .partition = {.kind = BRIM_PARTITION_FILE, .min_samples = 1, .path = name}};
  brim_data made = {.settings = &settings, .train = {.count = SPLIT, .task = BRIM_TASK_VALUES}};
  made.count[BRIM_PART_TRAIN] = TRAINING;
  brim_permutation_init(&made.split, 1, BRIM_STREAM_SPLIT, 0, SPLIT);
  if (brim_partition_make(&made, &p) == BRIM_OK) {
    check_samples(&p);
    read_again(&made, &settings, &p);
    brim_partition_release(&p);
  } else {
    check(strstr(brim_error_text(), ", line ") && strstr(brim_error_text(), ", column "), "refused without its place");
    check(!p.index && !p.offset, "refused, but something is left");
  }
  close(fd);
  return 0;
}
