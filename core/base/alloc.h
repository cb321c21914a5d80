/* Memory of the host. What a run could do without, or in another way, and what grows with sizes that people choose, is
 * asked for with brim_try_*, which may say no: then a step is discarded, or something is refused, and the run is as it
 * was. What is small and needed everywhere is asked for with brim_x*, which does not say no: a reserve is given back
 * first, so that the run gets to its next step, where it is taken again; if that does not help, the process ends at
 * once, with what was committed on the disk. */
#ifndef BRIM_BASE_ALLOC_H
#define BRIM_BASE_ALLOC_H
#include <stddef.h>

#include "brim/host.h" /* brim_try_calloc */

/* [any thread] NULL: there is no memory. Freed with free(). Never NULL for 0 bytes for that reason. */
void *brim_try_malloc(size_t bytes);
void *brim_try_realloc(void *old, size_t bytes); /* NULL: `old` is as it was */
void *brim_try_aligned(size_t alignment, size_t bytes);

/* [any thread] The same, but they end the process with a message when the host has no memory left. */
void *brim_xmalloc(size_t bytes);
void *brim_xcalloc(size_t count, size_t bytes);
void *brim_xrealloc(void *old, size_t bytes);
char *brim_xstrdup(const char *text);
/* [any thread] Ends the process so; `bytes`: what was asked for. */
_Noreturn void brim_out_of_memory(size_t bytes);

/* [init] [between steps] Takes the reserve if it is not there and can be had. It is address space, which nothing is
 * written to: it counts where memory is refused, by limits and strict overcommit, and not in what a process has. */
void brim_reserve_take(void);
/* [any thread] Gives it back, with what the C library keeps. */
void brim_reserve_give(void);
/* [init] A line for the message with which the process ends, copied; NULL: none. */
void brim_out_of_memory_advice(const char *text);
#endif
