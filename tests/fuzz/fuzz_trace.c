/* Fuzzes the traces of simulated clients: numbers in range and in order, or an error with its place. */
#include <math.h>

#include "federate/trace.h"
#include "memory_file.h"

#define CLIENTS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_trace: %s: %s\n", what, brim_error_text());
  abort();
}

/* "/proc/self/fd/3:2:1: ..." */
static void check_refusal(const char *name)
{
  const char *at = strstr(brim_error_text(), name);
  int line = 0, column = 0;
  check(at && sscanf(at + strlen(name), ":%d:%d: ", &line, &column) == 2 && line > 0 && column > 0, "says no place");
}

static void fuzz_devices(const char *name)
{
  float gflops[CLIENTS], *mbit = NULL;
  if (brim_trace_read_devices(name, CLIENTS, gflops, &mbit) != BRIM_OK)
    check_refusal(name);
  else
    for (int k = 0; k < CLIENTS; k++) {
      check(isfinite(gflops[k]) && gflops[k] > 0, "a speed");
      check(!mbit || (isfinite(mbit[k]) && mbit[k] > 0), "a bandwidth");
    }
  free(mbit);
}

static void fuzz_times(const char *name)
{
  brim_trace_times t;
  if (brim_trace_read_times(name, CLIENTS, &t) != BRIM_OK) {
    check_refusal(name);
    brim_trace_release(&t);
    return;
  }
  check(t.first[0] == 0 && t.period > 0, "a period");
  for (int64_t k = 0; k < CLIENTS; k++)
    for (int64_t i = t.first[k]; i < t.first[k + 1]; i++) {
      check(t.time[i].from < t.time[i].to && (i == t.first[k] || t.time[i - 1].to <= t.time[i].from), "an order");
      check(brim_trace_is_there(&t, k, t.time[i].from), "is not there when it comes");
    }
  brim_trace_release(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char name[32];
  const int fd = memory_file(data, size, name);
  fuzz_devices(name);
  fuzz_times(name);
  close(fd);
  return 0;
}
