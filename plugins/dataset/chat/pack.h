/* Packing documents into rows of equal length, so that few places stay empty. */
#ifndef CHAT_PACK_H
#define CHAT_PACK_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* Row r has the documents document[first[r]] .. document[first[r + 1] - 1], in this order. */
typedef struct chat_packs {
  uint32_t *first, *document; /* owned: rows + 1, and as many as there are documents */
  uint32_t rows;
} chat_packs;

/* Best fit decreasing: the documents, from the longest to the shortest, go into the row that they fill best, or into a
 * new row. Documents of the same length keep their order, and of rows with the same room the one that got it last is
 * taken, so the result depends on the lengths only. Takes O(n log context) time at most.
 *
 * `places`: of each document, in [1, context]. `apart`: a row for each document, in their order. ENOMEM_HOST. */
brim_status chat_pack(const uint32_t *places, uint32_t count, uint32_t context, int apart, chat_packs *out);
void chat_packs_free(chat_packs *packs);
#endif
