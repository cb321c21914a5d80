/* The largest micro-batch that fits on each device: now, and if no other process used the device. */
#ifndef BRIM_DRIVE_FITS_H
#define BRIM_DRIVE_FITS_H
#include "drive/drive.h"

typedef struct brim_fit {
  int64_t micro_batch, accumulation; /* 0: no micro-batch fits */
  uint64_t peak_bytes;               /* exact peak of its plan */
} brim_fit;

typedef struct brim_device_fit {
  char name[64];       /* "cuda:0", as for the key `device` */
  const char *backend; /* id of the backend's plugin */
  brim_device_info info;
  bool chosen;         /* the device is the run's own */
  brim_fit now, empty; /* within all limits of the configuration and the policies */
} brim_device_fit;

/* Ready when zeroed. */
typedef struct brim_fits {
  brim_device_fit *device;
  size_t count;
} brim_fits;

void brim_fits_release(brim_fits *fits);
/* [plan] Adds the devices of a drive's backend. The drive must have no plan, because if GPUs differ, this selects each
 * kind in turn, and then the run's own device again. */
brim_status brim_fits_add(brim_fits *fits, brim_drive *drive);
/* [plan] Adds the devices of the other backends that compute on the host, if the run's model can be planned there.
 * Skips GPU backends, because planning on them would load their libraries. Logs the policies' decisions, as every drive
 * does. */
void brim_fits_add_others(brim_fits *fits, const brim_drive *drive);
#endif
