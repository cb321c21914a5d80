/* Load, temperature and power of a GPU, which the driver measures (libnvidia-ml.so.1). The library comes with the
 * driver; if it is missing, or does not provide a figure, the figure is unknown. Needs no context on the device. */
#ifndef BRIM_MONITOR_GAUGES_H
#define BRIM_MONITOR_GAUGES_H

typedef struct brim_gauges {
  double load;             /* percent of a recent interval in which a kernel ran; NAN: unknown, as for all of these */
  double celsius;          /* temperature of the chip */
  double watts, watts_max; /* power that the board draws, and its limit */
} brim_gauges;

/* [init] uuid: from brim_device_info; "": not a GPU, so all figures are unknown. Opens the library at the first
 * call. */
brim_gauges brim_gauges_read(const char *uuid);
#endif
