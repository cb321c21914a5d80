/* Internal to the files of bpe.h. */
#ifndef BPE_PARTS_H
#define BPE_PARTS_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "bpe.h"

#define BPE_TOKENS_MAX ((int64_t)1 << 24)

/* The bytes of a token, in the vocabulary's memory. */
typedef struct bpe_token {
  const char *text;
  uint32_t bytes;
} bpe_token;

/* Two neighbours and their merged token, an entry of a hash table with open addressing. */
typedef struct bpe_merge {
  int32_t left, right; /* ids; left is -1 in a free entry */
  int32_t token;
  uint32_t rank; /* the lowest is merged first */
} bpe_merge;

struct bpe {
  bpe_token *token; /* by id */
  int64_t count;
  char *text; /* of all tokens */
  int32_t byte_token[256], end_of_text;
  bpe_merge *merge;
  size_t merge_mask; /* entries of the table, a power of two, minus one */
  pcre2_code *words;
  uint64_t hash;
};

/* Returns the entry of a pair, or the free entry for it. */
bpe_merge *bpe_place(const bpe *b, int32_t left, int32_t right);
/* The regular expression of words. */
brim_status bpe_words_compile(pcre2_code **out);

#define BPE_HASH_START 0xcbf29ce484222325u
/* FNV-1a (isthe.com/chongo/tech/comp/fnv). */
static inline uint64_t bpe_hash_add(uint64_t hash, const void *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return hash;
}
#endif
