/* Output of messages. Plugins and core call brim_log() and brim_fail() of brim/status.h; this header is for the command
 * line. Standard error gets messages, warnings, errors and the progress line; standard output gets the result of the
 * command. Colour is used only if standard error is a terminal and NO_COLOR is not set. */
#ifndef BRIM_BASE_LOG_H
#define BRIM_BASE_LOG_H
#include <stdbool.h>

#include "brim/status.h"

void brim_log_set_level(enum brim_level level);
/* Sets a function that is called before and after each message, so that a progress bar can make room for it; NULL:
 * none. */
void brim_log_set_hook(void (*function)(void *context, bool before), void *context);
/* [any thread] Prints one line on standard output: a description of the run, an evaluation, a result. --quiet
 * suppresses it, and only rank 0 prints. If standard output cannot be written, brim warns once and the run continues.
 * The text must not end with a newline. */
void brim_say(const char *format, ...) BRIM_PRINTF(1, 2);
/* Prints the thread's last error: "error: <text>", with the further lines of the text indented. At level DEBUG also its
 * place in the source. */
void brim_log_error(void);
/* [init] Reads NO_COLOR and TERM once: later, a message may be printed while another thread changes the environment, as
 * MPI does when it starts, and getenv() crashes if setenv() runs at the same time. Until then messages have no
 * colour. */
void brim_log_read_environment(void);
bool brim_log_color(void);
/* [init] Sets this process's rank among several: only rank 0 prints information; warnings and errors of other ranks are
 * prefixed with the rank. */
void brim_log_set_rank(int32_t number);
/* [init] Suppresses this rank's messages from here on, as another rank prints them. */
void brim_log_mute(void);
#endif
