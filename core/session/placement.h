/* From a session to a plan that has its memory: planning, waiting for a device, placing, and going on with what the
 * policies say where there is none. Everything here is before the first step, so nothing is lost. */
#ifndef BRIM_SESSION_PLACEMENT_H
#define BRIM_SESSION_PLACEMENT_H
#include "exec/exec.h"
#include "session/session.h"

/* [init] Of training, as the session goes, or of an evaluation, if `wish` is not NULL. Both belong to the caller on
 * success. EBUDGET, ENOMEM_DEVICE, ENODEVICE: no plan and no device were found; brim_session_asks if a policy asks for
 * another configuration. EINTERRUPTED. */
brim_status brim_placement_open(brim_session *session, const brim_evaluation_wish *wish, brim_plan **plan,
                                brim_exec **exec);
/* [plan] What brim_placement_open would do as far as it can be known without placing: settles the session, and lets the
 * policies go on where a plan does not fit. OK also if they find none that fits: brim_planner_check tells. */
brim_status brim_placement_try(brim_session **session);
#endif
