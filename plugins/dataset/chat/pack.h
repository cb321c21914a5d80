/* Packing documents into rows of equal length, so that few places stay empty. */
#ifndef CHAT_PACK_H
#define CHAT_PACK_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* The documents of row r are document[first[r]] .. document[first[r + 1] - 1], in this order. */
typedef struct chat_packs {
  uint32_t *first, *document; /* owned; first: rows + 1 entries; document: one entry for each document */
  uint32_t rows;
} chat_packs;

/* Packs by best fit decreasing: documents are put, from the longest to the shortest, into the row in which they leave
 * the least room, or into a new row. Documents of the same length keep their order. Of rows with the same room, the one
 * that has had this room for the shortest time is used. So the result depends on the lengths only. Takes O(n log
 * context) time at most.
 *
 * `places`: the length of each document, in [1, context]. `apart`: each document gets its own row, in their order.
 * Returns ENOMEM_HOST if there is no memory. */
brim_status chat_pack(const uint32_t *places, uint32_t count, uint32_t context, int apart, chat_packs *out);
void chat_packs_free(chat_packs *packs);
#endif
