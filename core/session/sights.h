/* What a session's policies are shown, told to whoever listens: a run's events. */
#ifndef BRIM_SESSION_SIGHTS_H
#define BRIM_SESSION_SIGHTS_H
#include "session/session.h"

/* [step] A device as it is looked at for a question ("line": who waits for it, and no more); own_bytes: of it the run's
 * arena. */
void brim_session_show_device(const brim_session *session, const char *question, const brim_device_view *device,
                              uint64_t own_bytes, uint64_t waiting_bytes);
/* [step] The host. */
void brim_session_show_host(const brim_session *session, const char *question, const brim_memory_view *memory);
/* [step] The peak of a plan. */
void brim_session_show_plan(const brim_session *session, const char *question, int64_t micro_batch,
                            uint64_t peak_bytes);
/* [init] And what else is known of it. */
void brim_session_show_figures(const brim_session *session, const char *question, int64_t micro_batch,
                               const brim_plan_figures *figures);
/* [init] The run itself: how its steps may be cut, and how long it is. */
void brim_session_show_run(const brim_session *session);
/* [init] The run begins to wait for a device (`seconds` below 0), or has claimed one after `seconds`. */
void brim_session_show_wait(const brim_session *session, const char *device, uint64_t need_bytes, const char *detail,
                            double seconds);
#endif
