/* state.json of a checkpoint: the run's state, and the length and hash of each other file. Internal to the checkpoints'
 * files. */
#ifndef BRIM_STORE_CHECKPOINT_STATE_H
#define BRIM_STORE_CHECKPOINT_STATE_H
#include "store/checkpoint.h"

extern const char *const brim_checkpoint_part_name[BRIM_CHECKPOINT_PARTS]; /* "model.safetensors", ... */

/* Writes <folder>/state.json, synced. EIO; EINVAL for an id that is not UTF-8. */
brim_status brim_checkpoint_state_write(const char *folder, const brim_train_state *state,
                                        const brim_file_digest digest[BRIM_CHECKPOINT_PARTS]);
/* Reads state.json. ELOAD if it is damaged. */
brim_status brim_checkpoint_state_read(const char *folder, brim_train_state *state,
                                       brim_file_digest digest[BRIM_CHECKPOINT_PARTS]);
/* Allocates room for a piece of the device's values; *out is NULL if `device` is NULL. The caller frees it.
 * ENOMEM_HOST. */
brim_status brim_checkpoint_room(const brim_safetensor *tensor, size_t count, const brim_checkpoint_device *device,
                                 void **out);
/* Reads a whole file of the checkpoint and compares it with state.json. ELOAD if it differs. */
brim_status brim_checkpoint_part_check(const char *folder, enum brim_checkpoint_part part,
                                       const brim_file_digest *expected);
#endif
