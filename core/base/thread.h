/* Threads of brim's own. */
#ifndef BRIM_BASE_THREAD_H
#define BRIM_BASE_THREAD_H
#include <pthread.h>
#include <time.h>

/* [any thread] Starts a thread that blocks all signals except those of its own crashes (base/crash.h), as the main
 * thread handles the others; `name`, up to 15 characters, is shown by debuggers. 0, or the error number. */
int brim_thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *context);
/* [any thread] Returns the time `seconds` from now on CLOCK_MONOTONIC, as the limit of a wait. */
struct timespec brim_time_in(double seconds);
#endif
