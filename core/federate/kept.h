/* Client states: the values that a client needs in a later round, brim_setup_kept_bytes for each client, in the file
 * that store/states.h describes. A state consists of the running statistics of norms (federate.norm_buffers=keep), the
 * parameters that federate.local_parameters names, the client's control (control.h), the residual that compression left
 * of its last update, and its personal model.
 *
 * A client starts a round from its state at the end of its last round, and its first round from the global model's
 * values. Running statistics are also a part of its update, so the global model's statistics are the mean over clients.
 *
 * A round stages states, and its commit makes them current. */
#ifndef BRIM_FEDERATE_KEPT_H
#define BRIM_FEDERATE_KEPT_H
#include "federate/control.h"
#include "setup/setup.h"
#include "store/safetensors.h"
#include "store/states.h"

typedef struct brim_kept brim_kept;

/* [init] `adopt`: a client's program that copies the global model, from any plan of the setup. *out is NULL if there
 * are no client states. ENOMEM_HOST. */
brim_status brim_kept_open(const brim_setup *setup, const brim_program *adopt, brim_kept **out);
void brim_kept_close(brim_kept *kept); /* NULL: nothing */
/* The file of client states, and its transactions. */
brim_states *brim_kept_states(brim_kept *kept);
/* [step, any thread] Call before the client's state is used: compares it with its checksum. Does nothing if the client
 * has no state, or kept is NULL. ELOAD: the state is damaged; EIO. */
brim_status brim_kept_check(const brim_kept *kept, int64_t client);
/* [step, any thread] Writes the client's state to a lane that has adopted the global model. Does nothing if the client
 * has no state, or kept is NULL. EIO. */
brim_status brim_kept_write(brim_kept *kept, const brim_keeping *lane);
/* [step, any thread] Writes the client's personal model in the same way. EIO. */
brim_status brim_kept_write_personal(brim_kept *kept, const brim_keeping *lane);
/* [step, any thread] Writes the client's control to a lane whose states are zeroed. Does nothing without controls. EIO.
 */
brim_status brim_kept_steer(brim_kept *kept, const brim_keeping *lane);
/* The functions that stage a state write to the slot of lane->place, which differs for each lane. They do nothing if
 * kept is NULL, or if states have no such part. */

/* [step, any thread] Call first: marks the slot as empty until the whole state is staged. EIO. */
brim_status brim_kept_begin(brim_kept *kept, const brim_keeping *lane);
/* [step, any thread] Error feedback, for one parameter after another: the first function adds the client's residual to
 * `change`, the change of the parameter in this update; the second, called with the compressed `change`, stages the new
 * residual. EIO. */
brim_status brim_kept_add_residual(brim_kept *kept, const brim_keeping *lane, size_t parameter, double *change);
brim_status brim_kept_stage_residual(brim_kept *kept, const brim_keeping *lane, size_t parameter, const double *change);
/* [step, any thread] Stages the lane's parameters as the client's personal model. ENUMERIC, EIO. */
brim_status brim_kept_stage_personal(brim_kept *kept, const brim_keeping *lane);
/* [step, any thread] Stages the rest of the client's state after round `round`, counted from 0, with the divisor from
 * brim_control_rates. ENUMERIC: a value is not finite; EIO. */
brim_status brim_kept_stage(brim_kept *kept, const brim_keeping *lane, int64_t round, double rates);
/* The server's controls; NULL if there are none, or kept is NULL. */
brim_control *brim_kept_control(brim_kept *kept);
/* [any] Lists the tensors of a checkpoint, in memory of `kept`, to be written, or to be read between two rounds.
 * Returns their number, 0 if kept is NULL. If out is NULL, only counts them. */
size_t brim_kept_tensors(brim_kept *kept, brim_safetensor *out);
#endif
