/* Where messages go. Plugins and core call brim_log() and brim_fail() of brim/status.h; this is for
 * the command line. Standard error has messages, warnings, errors and the progress line; standard output has what the
 * command was asked for. Colour only if standard error is a terminal and NO_COLOR is not set. */
#ifndef BRIM_BASE_LOG_H
#define BRIM_BASE_LOG_H
#include <stdbool.h>

#include "brim/status.h"

void brim_log_set_level(enum brim_level level);
/* Called before and after each message, so that a progress bar can move away; NULL: none. */
void brim_log_set_hook(void (*function)(void *context, bool before), void *context);
/* [any thread] One line on standard output: what a run is, an evaluation, a result. --quiet leaves it out, and only
 * rank 0 says it. If it cannot be written, one warning says so, and the run continues. No newline at the end. */
void brim_say(const char *format, ...) BRIM_PRINTF(1, 2);
/* "error: <text>" with the further lines of the text indented, for the thread's last error. With the
 * level at DEBUG also where in the source it comes from. */
void brim_log_error(void);
/* [init] NO_COLOR and TERM, once: a message may come while another thread changes the environment, as MPI does when it
 * starts, and getenv() beside setenv() crashes. Until then no message is coloured. */
void brim_log_read_environment(void);
bool brim_log_color(void);
/* [init] This process is a rank of several: rank 0 speaks; warnings and errors of the others say whose they are, and
 * what else they would say is said by rank 0 already. */
void brim_log_set_rank(int32_t number);
/* [init] Another rank says what there is to say from here on. */
void brim_log_mute(void);
#endif
