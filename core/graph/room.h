/* Places a program's buffers: finds the lowest offset that is free for a buffer's whole life. A program of ten thousand
 * nodes has tens of thousands of buffers, so the search visits neither all placed buffers nor all nodes of a life. */
#ifndef BRIM_GRAPH_ROOM_H
#define BRIM_GRAPH_ROOM_H
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct brim_room brim_room;

/* Makes an empty room, in `arena`, for `count` buffers that live between nodes 0 and `last`, inclusive. */
brim_room *brim_room_create(size_t count, int32_t last, brim_arena *arena);
/* Removes all buffers. */
void brim_room_clear(brim_room *r);
/* Places a buffer of `bytes`, at least one, at the lowest offset that is free from node `first` to `last`; returns the
 * offset. */
uint64_t brim_room_take(brim_room *r, uint64_t bytes, int32_t first, int32_t last);
#endif
