/* An arena is a list of blocks, each filled from its start; a large request gets a block of its own. Blocks grow with
 * their number, because a graph of ten thousand nodes would need hundreds of small ones, which are slow to allocate and
 * free. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)16 * 1024)
#define BLOCK_BYTES_MAX ((size_t)96 * 1024) /* malloc maps and unmaps larger blocks each time */

struct brim_arena_block {
  struct brim_arena_block *next;
  size_t used, room;
  _Alignas(16) unsigned char bytes[];
};

void brim_arena_release(brim_arena *arena)
{
  struct brim_arena_block *block = arena->head;
  while (block) {
    struct brim_arena_block *next = block->next;
    free(block);
    block = next;
  }
  arena->head = NULL;
}

/* The bytes that a new block needs; 0: the first block has room. */
static size_t room_of(const brim_arena *arena, size_t bytes)
{
  const struct brim_arena_block *head = arena->head;
  if (head && head->room - head->used >= bytes) return 0;
  if (bytes > BLOCK_BYTES) return bytes;
  if (!head || head->room < BLOCK_BYTES) return BLOCK_BYTES;
  return head->room < BLOCK_BYTES_MAX / 2 ? 2 * head->room : BLOCK_BYTES_MAX;
}

/* Returns zeroed memory from `block`, a new block, or from the first block if `block` is NULL. */
static void *put(brim_arena *arena, struct brim_arena_block *block, size_t room, size_t bytes)
{
  struct brim_arena_block *head = arena->head;
  if (block) {
    block->room = room;
    if (head && bytes > BLOCK_BYTES) { /* keep filling the block that still has room */
      block->next = head->next;
      head->next = block;
      block->used = bytes;
      return block->bytes;
    }
    block->next = head;
    arena->head = head = block;
  }
  void *p = head->bytes + head->used;
  head->used += bytes;
  return p;
}

static size_t rounded(size_t bytes)
{
  return (bytes + 15) & ~(size_t)15;
}

void *brim_arena_alloc(brim_arena *arena, size_t bytes)
{
  if (bytes > SIZE_MAX - 64) brim_out_of_memory(bytes);
  bytes = rounded(bytes);
  const size_t room = room_of(arena, bytes);
  return put(arena, room ? brim_xcalloc(1, sizeof(struct brim_arena_block) + room) : NULL, room, bytes);
}

void *brim_arena_try(brim_arena *arena, size_t bytes)
{
  if (bytes > SIZE_MAX - 64) return NULL;
  bytes = rounded(bytes);
  const size_t room = room_of(arena, bytes);
  struct brim_arena_block *block = room ? brim_try_calloc(1, sizeof *block + room) : NULL;
  return room && !block ? NULL : put(arena, block, room, bytes);
}

void *brim_arena_grow(brim_arena *arena, const void *array, size_t count, size_t *room, size_t element_bytes)
{
  if (count < *room) return (void *)array;
  *room = *room ? *room * 2 : 16;
  void *larger = brim_arena_alloc(arena, *room * element_bytes);
  if (count) memcpy(larger, array, count * element_bytes);
  return larger;
}

void *brim_arena_copy(brim_arena *arena, const void *from, size_t bytes)
{
  void *p = brim_arena_alloc(arena, bytes);
  if (bytes) memcpy(p, from, bytes);
  return p;
}

char *brim_arena_string_n(brim_arena *arena, const char *text, size_t bytes)
{
  char *p = brim_arena_alloc(arena, bytes + 1);
  memcpy(p, text, bytes);
  return p;
}

char *brim_arena_string(brim_arena *arena, const char *text)
{
  return brim_arena_string_n(arena, text, strlen(text));
}

char *brim_arena_printf(brim_arena *arena, const char *format, ...)
{
  char text[256]; /* nearly all are names */
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  const int length = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const size_t bytes = length > 0 ? (size_t)length : 0;
  char *p = brim_arena_alloc(arena, bytes + 1);
  if (bytes < sizeof text)
    memcpy(p, text, bytes);
  else
    vsnprintf(p, bytes + 1, format, again);
  va_end(again);
  return p;
}
