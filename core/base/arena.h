/* A bump allocator in host memory for many small allocations that are freed together. Memory is zeroed. This is not the
 * device's arena, which is one allocation of a backend. Not thread-safe. */
#ifndef BRIM_BASE_ARENA_H
#define BRIM_BASE_ARENA_H
#include <stddef.h>

#include "base/alloc.h"

typedef struct brim_arena {
  struct brim_arena_block *head;
} brim_arena;

/* A zeroed arena is ready for use; release frees all blocks and zeroes it. */
void brim_arena_release(brim_arena *arena);
/* Returns zeroed memory, aligned to 16 bytes. Ends the process with a message if the host is out of memory: these
 * allocations are small, and no caller could continue without them. */
void *brim_arena_alloc(brim_arena *arena, size_t bytes);
/* Does the same for large allocations, but returns NULL if the host is out of memory. */
void *brim_arena_try(brim_arena *arena, size_t bytes);
/* Makes room for one more element in an array of `count` elements that lives in the arena: a full array is copied to a
 * new one of twice the capacity. */
void *brim_arena_grow(brim_arena *arena, const void *array, size_t count, size_t *room, size_t element_bytes);
#define BRIM_ARENA_GROW(arena, array, count, room)                                                                     \
  ((array) = brim_arena_grow((arena), (array), (count), &(room), sizeof *(array)))
void *brim_arena_copy(brim_arena *arena, const void *from, size_t bytes);
char *brim_arena_string(brim_arena *arena, const char *text);
char *brim_arena_string_n(brim_arena *arena, const char *text, size_t bytes);
char *brim_arena_printf(brim_arena *arena, const char *format, ...) BRIM_PRINTF(2, 3);
#define BRIM_ARENA_NEW(arena, T, count) ((T *)brim_arena_alloc((arena), sizeof(T) * (size_t)(count)))
/* Sets `array` to `count` zeroed elements, as brim_arena_try does; its value is NULL if the host is out of memory. */
#define BRIM_ARENA_TRY(arena, array, count) ((array) = brim_arena_try((arena), (size_t)(count) * sizeof *(array)))
#endif
