/* Where buffers of a program lie, and where there is room for the next: the lowest offset that is free for its whole
 * life. A program of ten thousand nodes has tens of thousands of buffers, so neither the buffers that have their place
 * nor the nodes of a life are gone through one by one. */
#ifndef BRIM_GRAPH_ROOM_H
#define BRIM_GRAPH_ROOM_H
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct brim_room brim_room;

/* For `count` buffers, which live between nodes 0 and `last`, inclusive. Lives in the arena. */
brim_room *brim_room_create(size_t count, int32_t last, brim_arena *arena);
/* Nothing has its place any more. */
void brim_room_clear(brim_room *r);
/* Gives so many bytes, one at least, the lowest place that is free from node `first` to `last`; returns its offset. */
uint64_t brim_room_take(brim_room *r, uint64_t bytes, int32_t first, int32_t last);
#endif
