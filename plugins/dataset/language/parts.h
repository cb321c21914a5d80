/* Declarations that the files of tokenizer.h share. */
#ifndef TOKENIZER_PARTS_H
#define TOKENIZER_PARTS_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include "tokenizer.h"

#define TOKENS_MAX ((int64_t)1 << 24)
#define UNUSED_MAX 65536 /* maximum ids without a token */
#define STEPS_MAX 32     /* maximum steps of one kind */
#define NAME_ROOM 4096
#define LOW_LINE "\xe2\x96\x81" /* U+2581, which stands for a space in many vocabularies */
#define LOW_LINE_BYTES 3

/* ---- tokenizer_gguf.c ---- */

bool tokenizer_is_in_gguf(const char *path);
brim_status tokenizer_open_gguf(const char *path, tokenizer **out);

/* ---- text.c: bytes that grow, UTF-8, hashes ---- */

typedef struct slice {
  const char *text;
  size_t bytes;
} slice;

typedef struct buffer {
  char *data;
  size_t count, room;
} buffer;
brim_status buffer_reserve(buffer *b, size_t more);
brim_status buffer_add(buffer *b, const char *text, size_t bytes);
brim_status buffer_add_character(buffer *b, int32_t c);

/* Returns the bytes of the character at `text`. If it is not UTF-8, returns minus the number of bytes that U+FFFD
 * replaces (the maximal subpart, as Unicode recommends). bytes > 0. */
int utf8_length(const char *text, size_t bytes);
/* Returns the place of the first byte that is not UTF-8, or `bytes`. */
size_t utf8_check(const char *text, size_t bytes);
/* Returns the character at the start of valid UTF-8. */
int32_t utf8_character(const char *text);

uint64_t hash_bytes(const char *text, size_t bytes);
#define HASH_START 0xcbf29ce484222325u
/* FNV-1a (isthe.com/chongo/tech/comp/fnv). */
static inline uint64_t hash_add(uint64_t hash, const void *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return hash;
}
/* Returns the character that stands for the byte in GPT-2's alphabet of printable characters. */
int32_t symbol_of_byte(unsigned char byte);
/* Appends the text with a character of the alphabet for each byte. */
brim_status buffer_add_symbols(buffer *b, const char *text, size_t bytes);
/* Appends the bytes for which a token's characters stand. If a character is not in the alphabet, appends the token
 * itself. */
brim_status buffer_add_spelled(buffer *b, const char *token, size_t bytes);

/* ---- tables.c ---- */

/* The texts of tokens and their ids, as a hash table with open addressing. The texts are those of tokenizer.token. */
typedef struct names {
  struct {
    uint32_t hash;
    int32_t id; /* -1: free */
  } * entry;
  size_t mask;
} names;

/* A tree of byte strings. Its edges are in a hash table. Node 0 is the root. */
typedef struct trie {
  struct trie_edge {
    uint32_t from, to; /* to: 0 if the entry is free */
    unsigned char byte;
  } * edge;
  int32_t *value; /* for each node, its value, or -1 */
  size_t mask, nodes, room;
} trie;
brim_status trie_add(trie *t, const char *text, size_t bytes, int32_t value);
/* Returns the node after a byte, or 0. */
uint32_t trie_next(const trie *t, uint32_t node, unsigned char byte);
void trie_free(trie *t);

/* Two neighbours and the token into which they merge: an entry of a hash table with open addressing. */
typedef struct bpe_merge {
  int32_t left, right; /* ids of tokens; left is -1 in a free entry */
  int32_t token;
  uint32_t rank; /* the pair with the lowest rank is merged first */
} bpe_merge;

/* ---- the steps ---- */

typedef struct pattern {
  slice literal; /* the pattern itself, if it is not a regular expression */
  pcre2_code *regex;
} pattern;

enum normalize_kind { NORMALIZE_FORM, NORMALIZE_REPLACE, NORMALIZE_PREPEND, NORMALIZE_STRIP, NORMALIZE_LOWERCASE };
typedef struct normalize_step {
  enum normalize_kind kind;
  int form; /* options of utf8proc */
  pattern find;
  slice text; /* the replacement, or the text to prepend */
  bool left, right;
} normalize_step;

enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS };
enum prefix_when { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS };
typedef struct split_step {
  slice space;             /* replaces each space and is also the prefix; empty: no replacement and no prefix */
  enum prefix_when prefix; /* says when a piece that does not begin with `space` gets it as a prefix */
  bool splits, invert;
  pattern find;
  enum split_behavior behavior;
} split_step;

enum decode_kind { DECODE_BYTES, DECODE_REPLACE, DECODE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_METASPACE };
typedef struct decode_step {
  enum decode_kind kind;
  pattern find;
  slice text;
  size_t start, stop; /* maximum characters that are removed at the start and at the end */
} decode_step;

typedef struct added_token {
  slice content;
  int32_t id;
  bool single_word, left, right, normalized, special;
} added_token;

enum model_kind { MODEL_BPE, MODEL_UNIGRAM };

struct tokenizer {
  slice *token; /* by id; text is NULL if the id is unused */
  slice *piece; /* by id: the decoded bytes that the token has in the middle of a text */
  int64_t count, model_count;
  buffer text, pieces; /* the memory of `token` and `piece` */
  names names;
  uint64_t hash;
  int32_t end_of_text;

  added_token *added;
  trie before, after;                     /* the added tokens to find before and after normalization */
  bool before_byte[256], after_byte[256]; /* whether a byte begins one of these tokens */
  bool *special;                          /* by id */

  normalize_step normalize[STEPS_MAX];
  split_step split[STEPS_MAX];
  decode_step decode[STEPS_MAX];
  size_t normalize_count, split_count, decode_count;
  bool has_decoder, gpt2_words;
  slice *kept; /* texts of the steps, owned */
  size_t kept_count;
  pcre2_code *word_at_start; /* \w as Rust's library `regex` defines it; for tokens that are single words */
  int32_t *prefix, *suffix;  /* tokens that the template adds before and after a text */
  size_t prefix_count, suffix_count;

  enum model_kind model;
  bool byte_level, byte_fallback, ignore_merges, fuse_unknown;
  int32_t unknown;         /* -1: none */
  int32_t byte_token[256]; /* the token of a byte in a byte-level model, otherwise of <0xNN>; -1 if there is none */
  bpe_merge *merge;
  size_t merge_mask;
  bool may_cut, joins_low_line[256]; /* joins_low_line: bytes that a token has before U+2581 */
  double *score, unknown_score;
  trie pieces_of_model; /* the tokens of a Unigram model */
};

/* Returns the entry of a pair, or the free entry for it. */
bpe_merge *merge_place(const tokenizer *t, int32_t left, int32_t right);
void merge_prefetch(const tokenizer *t, int32_t left, int32_t right);
/* tokenizer_id() for up to NAMES_TOGETHER texts. It takes less time than single calls, because it waits for memory only
 * once. */
enum { NAMES_TOGETHER = 96 };
void names_find(const tokenizer *t, const slice *text, size_t count, int32_t *id);
/* Adds a token to the table of names. Returns false if the table already has a token with this text. */
bool names_add(tokenizer *t, int32_t id);
brim_status names_reserve(tokenizer *t, size_t count);

/* ---- scan.c: JSON that is too large for a tree ---- */

typedef struct scan {
  const char *name, *text;
  size_t count, at;
} scan;
brim_status scan_fail(const scan *s, const char *what);
brim_status scan_expect(scan *s, char c);
/* If the next character after spaces is `c`, consumes it and returns true. */
bool scan_take(scan *s, char c);
brim_status scan_string(scan *s, buffer *out); /* appends the text to *out */
brim_status scan_number(scan *s, double *out);
brim_status scan_end(scan *s);
/* Finds model.vocab and model.merges, and writes the rest of the text, with null in their place. Sets *found to false
 * if the text is not such an object; jansson then reports the error. */
typedef struct scan_sections {
  scan vocabulary, merges; /* text is NULL if the section is missing */
  buffer rest;
} scan_sections;
brim_status scan_cut(const tokenizer_source *source, scan_sections *out, bool *found);

/* ---- reading ---- */

typedef struct reading {
  tokenizer *t;
  const tokenizer_source *source, *merges;
  json_t *root;
} reading;
/* Returns ELOAD with the message "'file', path: ...". */
brim_status read_fail(const reading *r, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
brim_status read_normalizer(reading *r, const json_t *from, const char *path);
brim_status read_pre_tokenizer(reading *r, const json_t *from, const char *path);
brim_status read_decoder(reading *r, const json_t *from, const char *path);
brim_status read_post_processor(reading *r, const json_t *from, const char *path);
brim_status read_gpt2_steps(reading *r);
/* These functions read values of an object by key and type. They return ELOAD if the object has another key, or a value
 * of another type. */
brim_status read_check(const reading *r, const json_t *object, const char *path, const char *const *keys);
brim_status read_flag(const reading *r, const json_t *object, const char *path, const char *key, bool otherwise,
                      bool *out);
/* Copies the text into memory that the tokenizer owns. */
brim_status read_keep(const reading *r, const char *text, size_t bytes, slice *out);
bool read_is(const json_t *object, const char *key, const char *text);

brim_status read_vocabulary(reading *r, scan *s);
brim_status read_unigram_vocabulary(reading *r, scan *s);
brim_status read_merges(reading *r, scan *s);
brim_status read_added(reading *r, const json_t *list);
/* Computes the tables that depend on the whole vocabulary: tokens of bytes, places for cuts, pieces. */
brim_status read_finish(reading *r);

/* Compiles a regular expression that is written in Oniguruma's syntax. */
brim_status regex_compile(const reading *r, const char *path, const char *text, size_t bytes, pcre2_code **out);

/* ---- encoding ---- */

#define CACHE_BITS 14
#define CACHE_BYTES 24
#define CACHE_IDS 8
typedef struct cached {
  uint8_t bytes, count; /* bytes 0: free */
  char text[CACHE_BYTES];
  int32_t id[CACHE_IDS];
} cached;

/* A pair of neighbours as it was when it was inserted into the heap. */
typedef struct waiting {
  uint32_t rank;
  int32_t at, left, right, token; /* at: the place of the left neighbour */
} waiting;

typedef struct encoder {
  const tokenizer *t;
  const char *name;
  unsigned flags;
  tokenizer_take_fn take;
  void *context;
  pcre2_match_data *match;
  pcre2_match_context *limits;
  pcre2_jit_stack *stack;
  buffer normal[2], step[STEPS_MAX], symbols;
  cached *cache;
  /* For the byte-pair encoding of a piece: */
  int32_t *token, *next, *last; /* for each place; next and last are places, or -1 at the ends */
  waiting *heap;
  size_t heap_count, room;
  /* For Unigram, the best way to each place: */
  struct unigram_node {
    double score;
    int64_t from;
    int32_t id;
  } * node;
  size_t node_room;
} encoder;

/* Finds the first match of the pattern at or after `at`. Sets *found to false if there is none. */
brim_status pattern_find(encoder *e, const pattern *p, const char *text, size_t bytes, size_t at, size_t range[2],
                         bool *found);
brim_status normalize(encoder *e, const char *text, size_t bytes, slice *out);
/* Splits a piece by step k and the later steps. `first`: the piece is the beginning of the text. */
brim_status split(encoder *e, size_t k, const char *text, size_t bytes, bool first);
/* These functions make the tokens of a piece. */
brim_status bpe_encode(encoder *e, const char *text, size_t bytes);
brim_status unigram_encode(encoder *e, const char *text, size_t bytes);
void encoder_release(encoder *e);
brim_status encoder_open(encoder *e);
/* Appends the text, with `by` in place of the pattern. */
brim_status pattern_replace(encoder *e, const pattern *p, slice in, slice by, buffer *out);
brim_status decode_piece(const tokenizer *t, slice token, buffer *out);
bool is_space(int32_t c); /* Unicode's White_Space */
#endif
