/* Threads of brim's own. */
#ifndef BRIM_BASE_THREAD_H
#define BRIM_BASE_THREAD_H
#include <pthread.h>

/* [any thread] pthread_create, for a thread that takes no signals but those of its own crashes (base/crash.h), as the
 * others are the main thread's; with a name of up to 15 characters, which debuggers show. 0, or the error's number. */
int brim_thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *context);
#endif
