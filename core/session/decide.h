/* What a session asks its policies, and what comes of the answers. */
#ifndef BRIM_SESSION_DECIDE_H
#define BRIM_SESSION_DECIDE_H
#include "session/session.h"

/* [init] Which device to plan for: sets what the session wants, and its limit. ENODEVICE with brim_session_asks if it
 * is to be the host's processors. */
brim_status brim_decide_device(brim_session *session);
/* [init] A plan did not get its memory: `failure` and the thread's error text say why. OK: plan and place again, in
 * other micro-batches, or on another device, which is selected. Else `failure`, with its text; brim_session_asks if
 * another configuration is asked for. */
brim_status brim_decide_after_oom(brim_session *session, brim_status failure, uint64_t needed_bytes);
/* Is it want of memory that another plan or device may have? A run that may wait has had all its time. */
bool brim_decide_is_want(const brim_session *session, brim_status status);
/* What policies let a run have of a device. */
typedef struct brim_device_limit {
  bool allowed;   /* it may train there, if the user says so */
  uint64_t bytes; /* at most, libraries included; 0: no limit of theirs */
} brim_device_limit;
/* [plan] Of the first `count` devices of the backend. */
brim_status brim_decide_limits(brim_session *session, brim_device_limit *out, int count);
/* The session's device as it was looked at last, but for who waits for it; and its key in the queue (memory/claims.h).
 */
void brim_decide_view_device(const brim_session *session, brim_device_view *out);
uint64_t brim_decide_device_key(const brim_session *session);
/* [step] Between two steps, at a round's end: what to clean up. `is_end`: nothing is trained after it. */
brim_status brim_decide_at_boundary(brim_session *session, int64_t step, int64_t round, bool is_end,
                                    uint64_t planned_bytes, enum brim_cleanup *out);
#endif
