/* What metrics.jsonl tells, as a file of TensorBoard's: a scalar for each number of a record, "loss/train". */
#ifndef BRIM_OBSERVE_TENSORBOARD_H
#define BRIM_OBSERVE_TENSORBOARD_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define BRIM_TENSORBOARD_BYTES 8192 /* of the scalars of a record; numbers that do not fit are left out */

typedef struct brim_tensorboard {
  int fd; /* -1: nothing is written */
  char path[4096];
  unsigned char scalars[BRIM_TENSORBOARD_BYTES], record[BRIM_TENSORBOARD_BYTES + 64];
} brim_tensorboard;

/* [init] A new file <dir>/events.out.tfevents.<seconds since 1970>.brim, behind all that are there. `from_step`: of
 * what older files tell, steps from this one on have not been; -1: there are none. EIO. Without success nothing is
 * open. */
brim_status brim_tensorboard_open(brim_tensorboard *t, const char *dir, int64_t from_step);
/* [step] Readers forget what was told of steps from `from_step` on. EIO. */
brim_status brim_tensorboard_rewind(brim_tensorboard *t, int64_t from_step);
/* [step] A record of metrics.jsonl, as brim_jsonl has formatted it. Its "step" and "split" come first of what is used.
 * Allocates nothing. EIO. */
brim_status brim_tensorboard_add(brim_tensorboard *t, const char *line, size_t length);
void brim_tensorboard_close(brim_tensorboard *t); /* of one that is closed, or zeroed with fd = -1: a no-op */
#endif
