/* Blocks in a list, each filled from its start; a large request gets a block of its own. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)16 * 1024)

struct brim_arena_block {
  struct brim_arena_block *next;
  size_t used, room;
  _Alignas(16) unsigned char bytes[];
};

static void out_of_memory(void)
{
  static const char message[] = "error: out of host memory\n";
  (void)!write(STDERR_FILENO, message, sizeof message - 1);
  _exit(brim_status_exit(BRIM_ENOMEM_HOST));
}

void *brim_xmalloc(size_t bytes)
{
  void *p = malloc(bytes ? bytes : 1);
  if (!p) out_of_memory();
  return p;
}

void *brim_xcalloc(size_t count, size_t bytes)
{
  void *p = calloc(count ? count : 1, bytes ? bytes : 1);
  if (!p) out_of_memory();
  return p;
}

void *brim_xrealloc(void *old, size_t bytes)
{
  void *p = realloc(old, bytes ? bytes : 1);
  if (!p) out_of_memory();
  return p;
}

char *brim_xstrdup(const char *text)
{
  const size_t bytes = strlen(text) + 1;
  return memcpy(brim_xmalloc(bytes), text, bytes);
}

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

void *brim_arena_alloc(brim_arena *arena, size_t bytes)
{
  if (bytes > SIZE_MAX - 64) out_of_memory();
  bytes = (bytes + 15) & ~(size_t)15;
  struct brim_arena_block *head = arena->head;
  if (!head || head->room - head->used < bytes) {
    const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct brim_arena_block *block = brim_xcalloc(1, sizeof *block + room);
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
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  const int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  const size_t room = length > 0 ? (size_t)length + 1 : 1;
  char *p = brim_arena_alloc(arena, room);
  vsnprintf(p, room, format, again);
  va_end(again);
  return p;
}
