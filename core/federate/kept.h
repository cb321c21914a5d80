/* What clients keep from round to round (federate.norm_buffers=keep): the running statistics of their norms, in host
 * memory, brim_setup_kept_bytes a client. A client begins a round with those that it had at the end of its last round,
 * and with the global model's before it has trained. Its update has them as it has all other values, so the global
 * model's are the mean of the clients'.
 *
 * A round is a transaction here too: what clients end with is staged, and kept when the round is committed. */
#ifndef BRIM_FEDERATE_KEPT_H
#define BRIM_FEDERATE_KEPT_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/safetensors.h"

typedef struct brim_kept brim_kept;

/* [init] `adopt`: a client's program that copies the global model, of any plan of the setup; `staged`: clients of a
 * round at most. *out is NULL where clients keep nothing. ENOMEM_HOST. */
brim_status brim_kept_open(const brim_setup *setup, const brim_program *adopt, int64_t staged, brim_kept **out);
void brim_kept_close(brim_kept *kept); /* NULL: nothing */
/* [step, any thread] Writes what the client has kept to a lane that has adopted the global model. Nothing if the client
 * has kept nothing, or kept is NULL. */
brim_status brim_kept_write(const brim_kept *kept, brim_exec *lane, const brim_program *adopt, int64_t client);
/* [step, any thread, each with another `place`] Stages what a lane has now, for the client at `place` of the round.
 * Nothing if kept is NULL. */
brim_status brim_kept_stage(brim_kept *kept, brim_exec *lane, const brim_program *adopt, int64_t place);
/* What is staged for the client at `place`: *bytes of it. */
void *brim_kept_staged(brim_kept *kept, int64_t place, uint64_t *bytes);
/* [step] The client keeps what is staged for it, from the round with this number (from 0) on. */
void brim_kept_commit(brim_kept *kept, int64_t place, int64_t client, int64_t round);
/* [any] The tensors of a checkpoint, which lie in memory of `kept`: to be written, or to be read into between two
 * rounds. Returns how many; out NULL: only that. kept NULL: none. */
size_t brim_kept_tensors(brim_kept *kept, brim_safetensor *out);
#endif
