/* The host memory of this process, and the state of others. */
#ifndef BRIM_BASE_PROCESS_H
#define BRIM_BASE_PROCESS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes; 0 if the system does not report it. */
uint64_t brim_rss_peak_bytes(void); /* the highest resident memory so far (VmHWM) */
uint64_t brim_rss_bytes(void);      /* memory in use now (VmRSS) */
/* Reads a byte of each page of brim's own code. From here on the resident memory contains all of the code, independent
 * of the parts that run. */
void brim_touch_code(void);
/* Starts the program `file` in a process group of its own, with all signals at their defaults and no other open files
 * than its three streams. word: as argv, up to NULL; stream: descriptors, -1 for /dev/null. Returns an errno; 0: *pid
 * has started. Copies no page tables, as fork() would. */
int brim_process_start(const char *file, const char *const *word, char *const *environment, const int stream[3],
                       pid_t *pid);
/* Whether the kernel has stopped a process of this pid namespace, by a signal such as Ctrl-Z's or for a debugger. */
bool brim_process_is_stopped(int64_t pid);
/* Whether a thread of this pid namespace runs, or would if other threads did not have the processors. */
bool brim_thread_can_run(int64_t tid);
/* Seconds in which a thread was ready to run while other threads had the processors, up to the time at which it last
 * ran; 0: unknown. */
double brim_thread_queued_seconds(int64_t tid);
#endif
