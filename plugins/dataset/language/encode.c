/* Encodes a text as tokens. See tokenizer.h. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

#define STACK_START 32768
#define STACK_MAX ((size_t)64 << 20)

brim_status encoder_open(encoder *e)
{
  e->match = pcre2_match_data_create(1, NULL);
  e->limits = pcre2_match_context_create(NULL);
  e->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
  e->cache = brim_try_calloc((size_t)1 << CACHE_BITS, sizeof *e->cache);
  if (e->limits) pcre2_jit_stack_assign(e->limits, NULL, e->stack);
  if (e->match && e->limits && e->cache) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no memory to cut '%s' into words", e->name);
}

void encoder_release(encoder *e)
{
  pcre2_match_data_free(e->match);
  pcre2_match_context_free(e->limits);
  pcre2_jit_stack_free(e->stack);
  for (int i = 0; i < 2; i++) free(e->normal[i].data);
  for (size_t i = 0; i < STEPS_MAX; i++) free(e->step[i].data);
  free(e->symbols.data);
  free(e->cache);
  free(e->token);
  free(e->next);
  free(e->last);
  free(e->heap);
  free(e->node);
}

/* ---- added tokens ---- */

/* Returns the longest added token at `at`, or NULL. */
static const added_token *added_at(const tokenizer *t, const trie *tree, const char *text, size_t bytes, size_t at,
                                   size_t *end)
{
  const added_token *longest = NULL;
  uint32_t node = 0;
  for (size_t i = at; i < bytes && (node = trie_next(tree, node, (unsigned char)text[i])); i++)
    if (tree->value[node] >= 0) {
      longest = &t->added[tree->value[node]];
      *end = i + 1;
    }
  return longest;
}

static bool matches(encoder *e, const pcre2_code *code, const char *text, size_t bytes)
{
  return pcre2_match(code, (PCRE2_SPTR)text, bytes, 0, PCRE2_NO_UTF_CHECK, e->match, e->limits) >= 0;
}

/* Returns the start of the last character; bytes > 0. */
static size_t last_character(const char *text, size_t bytes)
{
  size_t at = bytes - 1;
  while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
  return at;
}

/* Returns whether there is no word character directly before or after the token. */
static bool is_single(encoder *e, const char *text, size_t bytes, size_t start, size_t end)
{
  const size_t before = start > 0 ? last_character(text, start) : 0;
  return !(start > 0 && matches(e, e->t->word_at_start, text + before, start - before)) &&
         !(end < bytes && matches(e, e->t->word_at_start, text + end, bytes - end));
}

static size_t spaces_before(const char *text, size_t start)
{
  while (start > 0) {
    const size_t at = last_character(text, start);
    if (!is_space(utf8_character(text + at))) break;
    start = at;
  }
  return start;
}

static size_t spaces_after(const char *text, size_t bytes, size_t end)
{
  while (end < bytes && is_space(utf8_character(text + end))) end += (size_t)utf8_length(text + end, bytes - end);
  return end;
}

/* Encodes a part of a text. `first`: the part is the beginning of the text. */
typedef brim_status (*part_fn)(encoder *e, const char *text, size_t bytes, bool first);

/* Finds the added tokens of the text, and passes the parts between them to `next`. */
static brim_status cut_added(encoder *e, const trie *tree, const bool *begins, const char *text, size_t bytes,
                             bool first, part_fn next)
{
  size_t done = 0, at = 0;
  while (tree->edge && at < bytes) {
    size_t end = at;
    if (!begins[(unsigned char)text[at]]) {
      at++;
      continue;
    }
    const added_token *a = added_at(e->t, tree, text, bytes, at, &end);
    const size_t found = at;
    at = a ? end : at + 1;
    if (!a || ((e->flags & TOKENIZER_PLAIN) && a->special)) continue;
    if (a->single_word && !is_single(e, text, bytes, found, end)) continue;
    size_t start = a->left ? spaces_before(text, found) : found;
    if (a->left && start < done) start = done;
    if (a->right) end = spaces_after(text, bytes, end);
    if (start > done) BRIM_TRY(next(e, text + done, start - done, first && done == 0));
    BRIM_TRY(e->take(e->context, &a->id, 1));
    /* The search continues at the token's end, before the spaces that the token removes, as in the library. */
    done = end;
  }
  return done < bytes ? next(e, text + done, bytes - done, first && done == 0) : BRIM_OK;
}

static brim_status encode_normal(encoder *e, const char *text, size_t bytes, bool first)
{
  return split(e, 0, text, bytes, first);
}

static brim_status encode_part(encoder *e, const char *text, size_t bytes, bool first)
{
  slice normal;
  BRIM_TRY(normalize(e, text, bytes, &normal));
  return cut_added(e, &e->t->after, e->t->after_byte, normal.text, normal.bytes, first, encode_normal);
}

/* ---- a text ---- */

static brim_status encode(encoder *e, const char *text, size_t bytes)
{
  const tokenizer *t = e->t;
  const size_t wrong = utf8_check(text, bytes);
  if (wrong < bytes)
    return brim_fail(BRIM_ELOAD,
                     "'%s' is not UTF-8 at byte %zu\nconvert it (iconv -t UTF-8), or take bytes for tokens: "
                     "dataset.tokens=bytes",
                     e->name, wrong);
  if ((e->flags & TOKENIZER_BEGIN) && t->prefix_count) BRIM_TRY(e->take(e->context, t->prefix, t->prefix_count));
  BRIM_TRY(cut_added(e, &t->before, t->before_byte, text, bytes, true, encode_part));
  return (e->flags & TOKENIZER_END) && t->suffix_count ? e->take(e->context, t->suffix, t->suffix_count) : BRIM_OK;
}

brim_status tokenizer_encode(const tokenizer *t, const char *name, const char *text, size_t bytes, unsigned flags,
                             tokenizer_take_fn take, void *context)
{
  encoder e = {.t = t, .name = name, .flags = flags, .take = take, .context = context};
  brim_status status = encoder_open(&e);
  if (status == BRIM_OK) status = encode(&e, text, bytes);
  encoder_release(&e);
  return status;
}

struct tokenizer_encoder {
  encoder e;
};

typedef struct taken {
  int32_t *tokens;
  size_t count, room;
} taken;

static brim_status take_into(void *context, const int32_t *tokens, size_t count)
{
  taken *t = context;
  if (count > t->room - t->count)
    return brim_fail(BRIM_ELOAD, "the text has more than %zu tokens, the most for its length", t->room);
  memcpy(t->tokens + t->count, tokens, count * sizeof *tokens);
  t->count += count;
  return BRIM_OK;
}

brim_status tokenizer_encode_into(const tokenizer *t, const char *text, size_t bytes, unsigned flags, int32_t *tokens,
                                  size_t *count)
{
  taken into = {tokens, 0, *count};
  BRIM_TRY(tokenizer_encode(t, "the text", text, bytes, flags, take_into, &into));
  *count = into.count;
  return BRIM_OK;
}

brim_status tokenizer_encoder_open(const tokenizer *t, tokenizer_encoder **out)
{
  tokenizer_encoder *made = brim_try_calloc(1, sizeof *made);
  *out = NULL;
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory to encode texts");
  made->e.t = t;
  made->e.name = "the texts";
  const brim_status status = encoder_open(&made->e);
  if (status == BRIM_OK)
    *out = made;
  else
    tokenizer_encoder_close(made);
  return status;
}

brim_status tokenizer_encoder_run(tokenizer_encoder *e, const char *name, const char *text, size_t bytes,
                                  unsigned flags, tokenizer_take_fn take, void *context)
{
  e->e.name = name;
  e->e.flags = flags;
  e->e.take = take;
  e->e.context = context;
  return encode(&e->e, text, bytes);
}

void tokenizer_encoder_close(tokenizer_encoder *e)
{
  if (!e) return;
  encoder_release(&e->e);
  free(e);
}
