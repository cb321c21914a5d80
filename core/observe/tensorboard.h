/* Writes the numbers of metrics.jsonl as TensorBoard scalars, one for each number of a record: "loss/train". */
#ifndef BRIM_OBSERVE_TENSORBOARD_H
#define BRIM_OBSERVE_TENSORBOARD_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define BRIM_TENSORBOARD_BYTES 8192 /* limit for the scalars of one record; numbers that do not fit are omitted */

typedef struct brim_tensorboard {
  int fd; /* -1: disabled */
  char path[4096];
  unsigned char scalars[BRIM_TENSORBOARD_BYTES], record[BRIM_TENSORBOARD_BYTES + 64];
} brim_tensorboard;

/* [init] Creates <dir>/events.out.tfevents.<seconds since 1970>.brim, which sorts after all existing files.
 * `from_step`: readers discard steps from this one on in older files; -1: they discard none. On EIO nothing is open. */
brim_status brim_tensorboard_open(brim_tensorboard *t, const char *dir, int64_t from_step);
/* [step] Makes readers discard steps from `from_step` on. EIO. */
brim_status brim_tensorboard_rewind(brim_tensorboard *t, int64_t from_step);
/* [step] Adds a record of metrics.jsonl, as brim_jsonl formats it: "step" and "split" come before the numbers.
 * Allocates nothing. EIO. */
brim_status brim_tensorboard_add(brim_tensorboard *t, const char *line, size_t length);
/* [between steps] Adds a summary message in a separate event. Allocates. EIO, ENOMEM_HOST. */
brim_status brim_tensorboard_summary(brim_tensorboard *t, int64_t step, const void *summary, size_t bytes);
/* Call after a failure: warns with the thread's error text, and closes the file. */
void brim_tensorboard_give_up(brim_tensorboard *t);
void brim_tensorboard_close(brim_tensorboard *t); /* does nothing if already closed, or zeroed with fd = -1 */
#endif
