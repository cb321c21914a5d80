/* Memory pressure: a thread regularly checks how full the host and the device are, and signals when to warn and when to
 * act. Steps only read an atomic.
 *
 * On a device, only the memory of other processes counts, because a full arena is normal. It counts relative to the
 * memory that this run's plan leaves to them, and only if it has grown since the plan was placed. Swap and processor
 * use are reported too, but cause no signal: a full swap may contain only unused pages, and training uses all
 * processors. */
#ifndef BRIM_MEMORY_PRESSURE_H
#define BRIM_MEMORY_PRESSURE_H
#include "base/host.h"
#include "brim/backend.h"

enum brim_pressure_level { BRIM_PRESSURE_CALM, BRIM_PRESSURE_WARNS, BRIM_PRESSURE_ACTS };

/* Each level is signalled once, and again only after use has fallen a twentieth below the lower limit. Until then, the
 * signal ACTS is repeated at intervals that double each time. */
typedef struct brim_pressure_limits {
  double warn_percent, critical_percent; /* 0: never */
} brim_pressure_limits;
/* The lower of the two limits that are set, or 0. */
double brim_pressure_lower(const brim_pressure_limits *limits);
#define BRIM_PRESSURE_GAP 60 /* readings between the first signal and the second */

/* The state of a series of readings. A zeroed struct is ready for use. */
typedef struct brim_pressure_watch {
  bool warned;
  int64_t gap, wait; /* in readings */
} brim_pressure_watch;
/* Judges one reading. *fell: the use is low again, and earlier signals no longer apply. */
enum brim_pressure_level brim_pressure_judge(const brim_pressure_limits *limits, brim_pressure_watch *watch,
                                             double percent, bool *fell);

typedef struct brim_pressure_reading {
  brim_host_use host;
  /* other processes' use of the device, in percent of device_left_bytes; 0 if the device is the host's
   * memory, or unknown */
  double device_percent;
  uint64_t device_others_bytes, device_left_bytes;
  bool device_grew; /* other processes use more than when this run's plan was placed; if not, they cause no pressure */
  double cpu_percent; /* since the previous reading */
} brim_pressure_reading;
/* The percentage that decides. */
double brim_pressure_percent(const brim_pressure_reading *reading);

/* The device to watch, read through the backend's `usage`. */
typedef struct brim_pressure_device {
  const brim_backend_ops *ops; /* NULL: no device */
  void *backend;
  int device;
  uint64_t own_bytes; /* bytes that this run uses, including libraries */
} brim_pressure_device;

typedef struct brim_pressure_options {
  brim_pressure_limits limits;
  double interval_seconds;
  const char *proc, *mount; /* NULL: "/proc" and "/sys/fs/cgroup" */
} brim_pressure_options;

typedef struct brim_pressure brim_pressure;
/* [init] Starts the thread. *out is NULL, and nothing is watched, if neither limit is set. ENOMEM_HOST. */
brim_status brim_pressure_open(const brim_pressure_options *options, brim_pressure **out);
void brim_pressure_close(brim_pressure *pressure);
/* [init] Sets the device to watch; NULL: none. After the call the thread no longer uses the previous device. */
void brim_pressure_aim(brim_pressure *pressure, const brim_pressure_device *device);
/* Whether the use would stay below the level at which pressure ends (brim_pressure_judge) if the run took `more` bytes
 * of the host's memory, or of the watched device's. */
bool brim_pressure_has_room(const brim_pressure_limits *limits, const brim_pressure_reading *reading, uint64_t more,
                            bool on_host);
/* [step] The number of consecutive checks, up to the last one, that found room for `more` bytes. A call with another
 * number of bytes starts counting again from 0. */
int64_t brim_pressure_checks_with_room(brim_pressure *pressure, uint64_t more, bool on_host);
/* [step] Whether a signal is pending. */
bool brim_pressure_is_due(const brim_pressure *pressure);
/* [step] Returns the pending signal and clears it, with the last reading. */
enum brim_pressure_level brim_pressure_take(brim_pressure *pressure, brim_pressure_reading *reading);
#endif
