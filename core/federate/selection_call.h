/* Calls a selector (brim/selector.h) and checks its answers and questions, for federations (federate/selection.h) and
 * for the synthetic federations of `brim check`. */
#ifndef BRIM_FEDERATE_SELECTION_CALL_H
#define BRIM_FEDERATE_SELECTION_CALL_H
#include "brim/selector.h"
#include "memory/plugin_call.h"

/* [init] Runs `work`, which calls the function, on the guard's thread, as brim_plugin_run does; guard NULL: directly.
 * ENOTSUP becomes EPLUGIN, because no other selector can answer. */
brim_status brim_selection_call(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context);

/* [any] EPLUGIN naming the selector if the size of its state is negative or too large. */
brim_status brim_selection_check_state(const char *id, int64_t own, int64_t of_client);
/* [any] EPLUGIN naming the selector, and the client if there is one, if it selected no client, too many, a client
 * twice, or a client that is not a candidate. `room`: the memory for the answer. `is_chosen`: a bit for each client,
 * all 0 before and after. */
brim_status brim_selection_check(const char *id, const brim_selection_query *query, const brim_selection *out,
                                 const int64_t *room, uint8_t *is_chosen);
/* [any] EINVAL if the selector must not ask for the losses of these clients, because a client does not exist, or
 * because the selector did not declare BRIM_NEED_LOSSES, so that the plan has no program for losses. */
brim_status brim_selection_check_question(uint32_t needs, const brim_selection_query *query, const int64_t *client,
                                          int64_t count);
#endif
