/* What clients keep between rounds (federate.norm_buffers=keep): the running statistics of their norms, in host memory,
 * brim_setup_kept_bytes per client. A client starts a round with those of the end of its last round, and its first
 * round with the global model's. Its update contains them like all other values, so the global model's are the mean of
 * the clients'.
 *
 * A round is a transaction here too: results are staged, and kept when the round commits. */
#ifndef BRIM_FEDERATE_KEPT_H
#define BRIM_FEDERATE_KEPT_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/safetensors.h"

typedef struct brim_kept brim_kept;

/* [init] `adopt`: a client's program that copies the global model, of any plan of the setup; `staged`: the most clients
 * in a round. *out is NULL if clients keep nothing. ENOMEM_HOST. */
brim_status brim_kept_open(const brim_setup *setup, const brim_program *adopt, int64_t staged, brim_kept **out);
void brim_kept_close(brim_kept *kept); /* NULL: nothing */
/* [step, any thread] Writes what the client has kept to a lane that has adopted the global model. Does nothing if the
 * client has kept nothing, or kept is NULL. */
brim_status brim_kept_write(const brim_kept *kept, brim_exec *lane, const brim_program *adopt, int64_t client);
/* [step, any thread; each call with another `place`] Stages a lane's present statistics for the client at `place` of
 * the round. Does nothing if kept is NULL. */
brim_status brim_kept_stage(brim_kept *kept, brim_exec *lane, const brim_program *adopt, int64_t place);
/* The staged bytes of the client at `place`; *bytes: their number. */
void *brim_kept_staged(brim_kept *kept, int64_t place, uint64_t *bytes);
/* [step] Keeps the staged statistics for the client, as those of this round (counted from 0). */
void brim_kept_commit(brim_kept *kept, int64_t place, int64_t client, int64_t round);
/* [any] The tensors of a checkpoint, in memory of `kept`: to be written, or to be read into between two rounds. Returns
 * their number; out NULL: nothing else. kept NULL: 0. */
size_t brim_kept_tensors(brim_kept *kept, brim_safetensor *out);
#endif
