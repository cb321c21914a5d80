/* The backend's threads: one job at a time, divided into tasks that any thread may take.
 *
 * A task's result never depends on its thread or on the number of threads, so the backend's results do not either. */
#ifndef CPU_POOL_H
#define CPU_POOL_H
#include <stdint.h>

#include "brim/status.h"

typedef struct cpu_pool cpu_pool;

/* A task of a job. task: its number in [0, tasks). thread: the number of its thread in [0, threads), to find
 * scratch. */
typedef void (*cpu_task_fn)(void *arg, int64_t task, int32_t thread);

/* [init] `threads` counts the caller of cpu_pool_run(), because the caller also works: 1 starts no thread. */
brim_status cpu_pool_create(int32_t threads, cpu_pool **out);
void cpu_pool_destroy(cpu_pool *pool); /* no-op for NULL */

/* [step] Runs all tasks and returns when the last one is done. Only one caller at a time may run a job, and no task
 * may. */
void cpu_pool_run(cpu_pool *pool, int64_t tasks, cpu_task_fn fn, void *arg);

/* [any thread] Limits OpenMP in libraries to the calling thread, because tasks already run in parallel. */
void cpu_pool_single_openmp(void);

#endif
