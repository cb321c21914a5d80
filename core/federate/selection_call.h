/* Calling a selector (brim/selector.h), and whether what it answers and asks can be done: for federations
 * (federate/selection.h), and for `brim check`, which asks about federations that are made up. */
#ifndef BRIM_FEDERATE_SELECTION_CALL_H
#define BRIM_FEDERATE_SELECTION_CALL_H
#include "brim/selector.h"
#include "memory/plugin_call.h"

/* [init] Runs `work`, which calls the function, on the guard's thread, as brim_plugin_run does; guard NULL: at once.
 * EPLUGIN for ENOTSUP too: nobody else is asked. */
brim_status brim_selection_call(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context);

/* [any] EPLUGIN naming the selector if the state that it asks for is too much, or less than none. */
brim_status brim_selection_check_state(const char *id, int64_t own, int64_t of_client);
/* [any] EPLUGIN naming the selector, and the client if one is to blame: it has selected none or too many, one twice, or
 * one that is no candidate. `room`: the memory that was given for the answer. `is_chosen`: a bit for each client, all 0
 * before and after. */
brim_status brim_selection_check(const char *id, const brim_selection_query *query, const brim_selection *out,
                                 const int64_t *room, uint8_t *is_chosen);
/* [any] EINVAL if the selector may not ask for the losses of these clients: one is none of the federation's, or it has
 * not said that it needs losses, so nothing was planned for them. */
brim_status brim_selection_check_question(uint32_t needs, const brim_selection_query *query, const int64_t *client,
                                          int64_t count);
#endif
