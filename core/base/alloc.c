/* All of brim's own allocations go through this file, so that a test can make each of them fail (base/fault.h). */
#include "base/alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "base/fault.h"

#define RESERVE_BYTES ((size_t)1024 * 1024)

static _Atomic(void *) reserve;
static char advice[4400];

static bool fails(void)
{
  return brim_fault_hit(BRIM_FAULT_ALLOC, NULL);
}

void *brim_try_malloc(size_t bytes)
{
  return fails() ? NULL : malloc(bytes ? bytes : 1);
}

void *brim_try_calloc(size_t count, size_t bytes)
{
  return fails() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *brim_try_realloc(void *old, size_t bytes)
{
  return fails() ? NULL : realloc(old, bytes ? bytes : 1);
}

void *brim_try_aligned(size_t alignment, size_t bytes)
{
  if (bytes > SIZE_MAX - alignment) return NULL;
  return fails() ? NULL : aligned_alloc(alignment, brim_round_up(bytes, alignment));
}

/* ---- allocations that end the process on failure ---- */

void brim_reserve_take(void)
{
  if (atomic_load_explicit(&reserve, memory_order_relaxed)) return;
  /* Calls malloc, not brim_try_malloc: a failure here does no harm, so tests need not make it fail. */
  void *mine = malloc(RESERVE_BYTES), *none = NULL;
  if (mine && !atomic_compare_exchange_strong(&reserve, &none, mine)) free(mine);
}

void brim_reserve_give(void)
{
  free(atomic_exchange(&reserve, NULL));
  malloc_trim(0);
}

void brim_out_of_memory_advice(const char *text)
{
  snprintf(advice, sizeof advice, "%s", text ? text : "");
}

/* Uses neither stdio nor exit handlers, which may allocate. The effect is that of a kill: the kernel releases the
 * process's locks, its temporary files are not renamed, and the next process removes its entries from the ledger and
 * the queue. */
_Noreturn void brim_out_of_memory(size_t bytes)
{
  char message[sizeof advice + 128];
  const int length = snprintf(message, sizeof message, "error: out of host memory: cannot allocate %zu bytes%s%s\n",
                              bytes, advice[0] ? "\n  " : "", advice);
  if (length > 0) (void)!write(STDERR_FILENO, message, (size_t)length);
  brim_fault_close(); /* writes the report of faults */
  _exit(brim_status_exit(BRIM_ENOMEM_HOST));
}

void *brim_xmalloc(size_t bytes)
{
  void *p = brim_try_malloc(bytes);
  if (p) return p;
  brim_reserve_give();
  if (!(p = brim_try_malloc(bytes))) brim_out_of_memory(bytes);
  return p;
}

void *brim_xcalloc(size_t count, size_t bytes)
{
  void *p = brim_try_calloc(count, bytes);
  if (p) return p;
  brim_reserve_give();
  if (!(p = brim_try_calloc(count, bytes)))
    brim_out_of_memory(bytes > 0 && count > SIZE_MAX / bytes ? SIZE_MAX : count * bytes);
  return p;
}

void *brim_xrealloc(void *old, size_t bytes)
{
  void *p = brim_try_realloc(old, bytes);
  if (p) return p;
  brim_reserve_give();
  if (!(p = brim_try_realloc(old, bytes))) brim_out_of_memory(bytes);
  return p;
}

void *brim_xgrow(void *array, size_t count, size_t *room, size_t element_bytes)
{
  if (count < *room) return array;
  *room = *room ? *room * 2 : 16;
  return brim_xrealloc(array, *room * element_bytes);
}

char *brim_xstrdup(const char *text)
{
  const size_t bytes = strlen(text) + 1;
  return memcpy(brim_xmalloc(bytes), text, bytes);
}
