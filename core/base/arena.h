/* A bump allocator on the host: many small allocations, freed together. Zeroed memory. Not the
 * device's arena, which is one allocation made by a backend. Not thread-safe. */
#ifndef BRIM_BASE_ARENA_H
#define BRIM_BASE_ARENA_H
#include <stddef.h>

#include "base/alloc.h"

typedef struct brim_arena {
  struct brim_arena_block *head;
} brim_arena;

/* An arena is ready when zeroed; release gives everything back and zeroes it. */
void brim_arena_release(brim_arena *arena);
/* Zeroed, aligned to 16. Ends the process with a message if the host has no memory left: these are
 * small, and nobody could go on without them. */
void *brim_arena_alloc(brim_arena *arena, size_t bytes);
/* The same for what is large: NULL if the host has no memory for it. */
void *brim_arena_try(brim_arena *arena, size_t bytes);
/* Makes room for one more element in an array of `count` that lives in the arena: a full one moves to twice the room.
 */
void *brim_arena_grow(brim_arena *arena, const void *array, size_t count, size_t *room, size_t element_bytes);
#define BRIM_ARENA_GROW(arena, array, count, room)                                                                     \
  ((array) = brim_arena_grow((arena), (array), (count), &(room), sizeof *(array)))
void *brim_arena_copy(brim_arena *arena, const void *from, size_t bytes);
char *brim_arena_string(brim_arena *arena, const char *text);
char *brim_arena_string_n(brim_arena *arena, const char *text, size_t bytes);
char *brim_arena_printf(brim_arena *arena, const char *format, ...) BRIM_PRINTF(2, 3);
#define BRIM_ARENA_NEW(arena, T, count) ((T *)brim_arena_alloc((arena), sizeof(T) * (size_t)(count)))
#endif
