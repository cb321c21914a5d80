/* Divides work among threads before a run's first step. */
#ifndef BRIM_BASE_PARALLEL_H
#define BRIM_BASE_PARALLEL_H
#include <stdint.h>

/* [init] Calls work(context, task) for each task of 0 .. count-1, in any order, in `threads` threads including the
 * calling one, and returns when all are done. `name`: as for brim_thread_start. If threads cannot be started, fewer do
 * the work. */
void brim_in_parallel(const char *name, int32_t threads, int64_t count, void (*work)(void *context, int64_t task),
                      void *context);
#endif
