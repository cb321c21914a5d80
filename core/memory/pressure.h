/* Memory pressure: a thread looks every so often at how full the host and the device are, and says when it is time to
 * warn and to act. Steps only read an atomic.
 *
 * Of a device what others have of it counts, against what this run's own plan leaves them, once it is more than when
 * the plan was placed: a full arena is how brim works. Swap and processors are told with it and decide nothing: pages
 * that nobody needs lie in a full swap, and training uses all processors there are. */
#ifndef BRIM_MEMORY_PRESSURE_H
#define BRIM_MEMORY_PRESSURE_H
#include "base/host.h"
#include "brim/backend.h"

enum brim_pressure_level { BRIM_PRESSURE_CALM, BRIM_PRESSURE_WARNS, BRIM_PRESSURE_ACTS };

/* Each once, until the use has fallen a twentieth below the lower of both; ACTS also again while it has not, after a
 * gap that doubles each time. */
typedef struct brim_pressure_limits {
  double warn_percent, critical_percent; /* 0: never */
} brim_pressure_limits;
/* The lower of the two that are set; 0: neither is. */
double brim_pressure_lower(const brim_pressure_limits *limits);
#define BRIM_PRESSURE_GAP 60 /* looks from the first time to the second */

/* What a row of looks has led to. Ready when zeroed. */
typedef struct brim_pressure_watch {
  bool warned;
  int64_t gap, wait; /* in looks */
} brim_pressure_watch;
/* One look. *fell: the use is low again, and what was said before no longer holds. */
enum brim_pressure_level brim_pressure_judge(const brim_pressure_limits *limits, brim_pressure_watch *watch,
                                             double percent, bool *fell);

typedef struct brim_pressure_reading {
  brim_host_use host;
  /* what others have of the device, and of how much; 0 where it is the host's memory, or not known */
  double device_percent;
  uint64_t device_others_bytes, device_left_bytes;
  bool device_grew;   /* others have more of it than when this run's plan was placed; else nobody presses */
  double cpu_percent; /* since the look before */
} brim_pressure_reading;
/* Of what decides. */
double brim_pressure_percent(const brim_pressure_reading *reading);

/* Whose device is looked at, through its `usage`. */
typedef struct brim_pressure_device {
  const brim_backend_ops *ops; /* NULL: none */
  void *backend;
  int device;
  uint64_t own_bytes; /* that this run has of it, libraries included */
} brim_pressure_device;

typedef struct brim_pressure_options {
  brim_pressure_limits limits;
  double interval_seconds;
  const char *proc, *mount; /* NULL: "/proc" and "/sys/fs/cgroup" */
} brim_pressure_options;

typedef struct brim_pressure brim_pressure;
/* [init] Starts the thread. *out is NULL, and nothing is looked at, if neither limit is set. ENOMEM_HOST. */
brim_status brim_pressure_open(const brim_pressure_options *options, brim_pressure **out);
void brim_pressure_close(brim_pressure *pressure);
/* [init] Which device from now on; NULL: none. Afterwards nobody uses the one before. */
void brim_pressure_aim(brim_pressure *pressure, const brim_pressure_device *device);
/* [step] Is there something to take? */
bool brim_pressure_is_due(const brim_pressure *pressure);
/* [step] What it is, once, and what was seen last. */
enum brim_pressure_level brim_pressure_take(brim_pressure *pressure, brim_pressure_reading *reading);
#endif
