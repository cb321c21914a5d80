/* Host memory. Use brim_try_*, which may return NULL, for memory that a run can do without or obtain in another way,
 * and for memory that grows with sizes that users choose: on failure a step is discarded or a request refused, and the
 * run is unchanged. Use brim_x*, which never returns NULL, for small allocations that are needed everywhere: when
 * memory runs out they first release a reserve, so that the run reaches its next step, where the reserve is taken
 * again; if that does not help, the process exits at once, and the last checkpoint is on the disk. */
#ifndef BRIM_BASE_ALLOC_H
#define BRIM_BASE_ALLOC_H
#include <stddef.h>

#include "brim/host.h" /* brim_try_calloc */

/* [any thread] Like malloc and its family; free the memory with free(). NULL always means out of memory: for 0 bytes
 * they return a pointer too. */
void *brim_try_malloc(size_t bytes);
void *brim_try_realloc(void *old, size_t bytes); /* NULL: `old` is unchanged */
void *brim_try_aligned(size_t alignment, size_t bytes);

/* [any thread] The same, but end the process with a message when the host is out of memory. */
void *brim_xmalloc(size_t bytes);
void *brim_xcalloc(size_t count, size_t bytes);
void *brim_xrealloc(void *old, size_t bytes);
char *brim_xstrdup(const char *text);
/* [any thread] Makes room for one more element in an array of `count` elements: a full array is reallocated with twice
 * the capacity. For arrays in an arena: BRIM_ARENA_GROW. */
void *brim_xgrow(void *array, size_t count, size_t *room, size_t element_bytes);
#define BRIM_GROW(array, count, room) ((array) = brim_xgrow((array), (count), &(room), sizeof *(array)))
/* [any thread] Ends the process with that message; `bytes`: the size of the failed request. */
_Noreturn void brim_out_of_memory(size_t bytes);

/* [init] [between steps] Takes the reserve if it was released and memory allows. It is address space that is never
 * written to: it counts towards limits and strict overcommit, but not towards the process's resident memory. */
void brim_reserve_take(void);
/* [any thread] Releases the reserve and the memory that the C library caches. */
void brim_reserve_give(void);
/* [init] Sets a line that the message of an out-of-memory exit ends with; the text is copied. NULL: no line. */
void brim_out_of_memory_advice(const char *text);
#endif
