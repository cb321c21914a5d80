/* The documents of a split as tokens, packed into rows: one block of memory, kept in a file of the user's cache, so
 * that the next run reads no JSON.
 *
 *     head         chat_head
 *     tokens       of all documents, uint16 or uint32 in the host's byte order: the file belongs to the host
 *     counts       a bit for each token: it is learnt
 *     start        uint64: the first token of each document, and the end of the last one
 *     line, file   uint32: where each document comes from
 *     first        uint32: of each row, the first of its documents in the next part, and the end
 *     document     uint32: the documents of the rows
 *
 * Each part begins at a multiple of 8 bytes. */
#ifndef CHAT_SET_H
#define CHAT_SET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* Figures of `brim data` that cannot be computed from the documents. */
typedef struct chat_facts {
  int64_t conversations;          /* rows of the files that belong to the split */
  int64_t tail_tokens;            /* dropped tokens that follow the last token that counts of a conversation */
  int64_t too_long, skipped, cut; /* too_long: those with more tokens than fit into a row */
  int64_t cut_tokens;             /* tokens that cutting has dropped */
  int64_t unanswered;             /* conversations whose messages after the last answer were dropped */
  int64_t longest, longest_file, longest_line;
  int64_t length[5]; /* tokens of a conversation, up to the last one that counts: least, median, 90 %, 99 %, most */
} chat_facts;

typedef struct chat_head {
  uint64_t magic, key, bytes;
  uint64_t checksum, head_checksum; /* cover all after the head; cover the head, with 0 in this place */
  uint64_t vocabulary_hash;
  int64_t vocabulary; /* rows that a table of embeddings needs at least */
  int64_t tokens, documents, rows, context, counted;
  int64_t width; /* bytes of a token */
  chat_facts facts;
} chat_head;

typedef struct chat_set {
  const chat_head *head; /* NULL: not open */
  const void *tokens;
  const uint8_t *counts;
  const uint64_t *start;
  const uint32_t *line, *file, *first, *document;
  bool mapped; /* head is a map; else allocated */
} chat_set;

/* [init] Allocates a set of the sizes in `head`, whose parts the caller fills. The pointers of `out` are const for its
 * readers; chat_set_seal sets the checksum. ENOMEM_HOST. */
brim_status chat_set_create(const chat_head *head, chat_set *out);
void chat_set_seal(chat_set *set);
void chat_set_close(chat_set *set); /* a no-op if the set is not open */

/* [init] Reads the head of a kept set; false if no set is kept for the key. */
bool chat_set_peek(const char *path, uint64_t key, chat_head *out);
/* [init] Maps a kept set. False if no set is kept for the key, or if it is damaged: then with a warning. */
bool chat_set_open(const char *path, uint64_t key, chat_set *out);
/* [init] Keeps a set, and maps the file instead of the memory. A failure to write is a warning. */
void chat_set_keep(const char *path, chat_set *set);

/* [any thread] Writes a row: `context` tokens, their places in their documents (NULL: not wanted), and the tokens to
 * predict at them. Free places at the end are documents of one token, of which nothing is learnt. */
void chat_set_read(const chat_set *set, int64_t row, int32_t *tokens, int32_t *places, int32_t *labels);
#endif
