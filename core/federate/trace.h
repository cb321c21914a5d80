/* Reads the CSV files with the speeds of simulated clients and the times at which they are available. Every error names
 * the file, the line and the column. Internal to core/federate. */
#ifndef BRIM_FEDERATE_TRACE_H
#define BRIM_FEDERATE_TRACE_H
#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

/* [init] Reads world.devices: a header "client,gflops" or "client,gflops,bandwidth_mbit", and a line for each of
 * `clients`, from client 0 on. `gflops`: [clients]. *mbit: [clients], allocated if the file has that column, else NULL;
 * the caller frees it. ECONFIG, ELOAD, ENOMEM_HOST. */
brim_status brim_trace_read_devices(const char *path, int64_t clients, float *gflops, float **mbit);

/* The times in which clients are available: each is an interval [from, to). */
typedef struct brim_trace_time {
  double from, to;
} brim_trace_time;
typedef struct brim_trace_times {
  int64_t *first; /* [clients + 1] into time */
  brim_trace_time *time;
  double period; /* length of the repeating cycle: the latest end of a time */
} brim_trace_times;

/* [init] Reads world.trace: "client,start,end", each client's lines together and in the order of time. A client without
 * a line is never available. ECONFIG, ELOAD, ENOMEM_HOST. Call brim_trace_release even on failure. */
brim_status brim_trace_read_times(const char *path, int64_t clients, brim_trace_times *out);
void brim_trace_release(brim_trace_times *times);
/* [any thread] Whether the client is available at this time. */
bool brim_trace_is_there(const brim_trace_times *times, int64_t client, double seconds);
#endif
