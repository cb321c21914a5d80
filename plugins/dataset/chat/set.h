/* The documents of a split as tokens, packed into rows. They are one block of memory, which is also stored in a file of
 * the user's cache, so that the next run reads no JSON.
 *
 *     head         chat_head
 *     tokens       the tokens of all documents, uint16 or uint32 in this host's byte order
 *     counts       a bit for each token: whether the model learns it
 *     start        uint64: the first token of each document, and the end of the last one
 *     line, file   uint32: where each document comes from
 *     first        uint32: for each row, its first document in the next part; then the end
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
  int64_t tail_tokens;            /* dropped tokens after the last token that counts in a conversation */
  int64_t too_long, skipped, cut; /* too_long: conversations with more tokens than fit into a row */
  int64_t cut_tokens;             /* tokens that were dropped by cutting */
  int64_t unanswered;             /* conversations whose messages after the last answer were dropped */
  int64_t longest, longest_file, longest_line;
  int64_t length[5]; /* conversations' tokens up to the last one that counts: least, median, 90 %, 99 %, most */
} chat_facts;

typedef struct chat_head {
  uint64_t magic, key, bytes;
  /* checksum: of all bytes after the head. head_checksum: of the head, with 0 in this place. */
  uint64_t checksum, head_checksum;
  uint64_t vocabulary_hash;
  int64_t vocabulary; /* minimum rows of the model's table of embeddings */
  int64_t tokens, documents, rows, context, counted;
  int64_t width; /* bytes per token */
  chat_facts facts;
} chat_head;

typedef struct chat_set {
  const chat_head *head; /* NULL if the set is not open */
  const void *tokens;
  const uint8_t *counts;
  const uint64_t *start;
  const uint32_t *line, *file, *first, *document;
  bool mapped; /* head is mapped from a file; otherwise it is allocated */
} chat_set;

/* [init] Allocates a set with the sizes in `head`. The caller fills its parts (the pointers of `out` are const for
 * readers), and chat_set_seal then sets the checksums. Returns ENOMEM_HOST if there is no memory. */
brim_status chat_set_create(const chat_head *head, chat_set *out);
void chat_set_seal(chat_set *set);
void chat_set_close(chat_set *set); /* a no-op if the set is not open */

/* [init] Reads the head of a stored set. Returns false if no set is stored for the key. */
bool chat_set_peek(const char *path, uint64_t key, chat_head *out);
/* [init] Maps a stored set. Returns false if no set is stored for the key, or, after a warning, if the set is
 * damaged. */
bool chat_set_open(const char *path, uint64_t key, chat_set *out);
/* [init] Stores a set, and then maps the file instead of using the memory. A failure to write only gives a warning. */
void chat_set_keep(const char *path, chat_set *set);

/* [any thread] Writes a row: `context` tokens, their places in their documents (unless `places` is NULL), and the
 * tokens to predict at them. Each free place at the end of a row is a document of one token, from which nothing is
 * learnt. */
void chat_set_read(const chat_set *set, int64_t row, int32_t *tokens, int32_t *places, int32_t *labels);
#endif
