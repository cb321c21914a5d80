/* From tokens to text. See tokenizer.h.
 *
 * The decoders of the library `tokenizers` map a list of texts, one for each token, to another list, step by step; the
 * texts are then joined. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Texts of a list, one after the other. */
typedef struct list {
  buffer text;
  size_t *end;
  size_t count, room;
} list;

static void list_free(list *l)
{
  free(l->text.data);
  free(l->end);
}

/* Ends the text that was appended last. */
static brim_status list_end(list *l)
{
  if (l->count == l->room) {
    const size_t room = l->room ? 2 * l->room : 64;
    size_t *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(l->end, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory to decode %zu tokens", room);
    l->end = grown;
    l->room = room;
  }
  l->end[l->count++] = l->text.count;
  return BRIM_OK;
}

static slice list_at(const list *l, size_t i)
{
  const size_t from = i ? l->end[i - 1] : 0;
  return (slice){l->text.data + from, l->end[i] - from};
}

/* Appends text, with U+FFFD in place of bytes that are not UTF-8. */
static brim_status add_repaired(buffer *out, slice in)
{
  for (size_t at = 0; at < in.bytes;) {
    const int length = utf8_length(in.text + at, in.bytes - at);
    if (length > 0)
      BRIM_TRY(buffer_add(out, in.text + at, (size_t)length));
    else
      BRIM_TRY(buffer_add(out, REPLACEMENT, 3));
    at += (size_t)(length > 0 ? length : -length);
  }
  return BRIM_OK;
}

/* The byte of "<0xNN>", or -1. */
static int fallback_byte(slice token)
{
  static const char digits[] = "0123456789abcdef";
  if (token.bytes != 6 || memcmp(token.text, "<0x", 3) != 0 || token.text[5] != '>') return -1;
  int byte = 0;
  for (int i = 3; i < 5; i++) {
    const char c = token.text[i], *digit = strchr(digits, c >= 'A' && c <= 'F' ? c | 0x20 : c);
    if (!c || !digit) return -1;
    byte = 16 * byte + (int)(digit - digits);
  }
  return byte;
}

static brim_status replace(const decode_step *d, slice in, buffer *out)
{
  encoder e = {.name = "the tokens"};
  const bool regex = d->find.regex != NULL;
  brim_status status = regex ? encoder_open(&e) : BRIM_OK;
  if (status == BRIM_OK) status = pattern_replace(&e, &d->find, in, d->text, out);
  if (regex) encoder_release(&e);
  return status;
}

static slice strip(const decode_step *d, slice in)
{
  for (size_t i = 0; i < d->start && in.bytes >= d->text.bytes; i++) {
    if (memcmp(in.text, d->text.text, d->text.bytes) != 0) break;
    in = (slice){in.text + d->text.bytes, in.bytes - d->text.bytes};
  }
  for (size_t i = 0; i < d->stop && in.bytes >= d->text.bytes; i++) {
    if (memcmp(in.text + in.bytes - d->text.bytes, d->text.text, d->text.bytes) != 0) break;
    in.bytes -= d->text.bytes;
  }
  return in;
}

static brim_status add_spaces(const decode_step *d, slice in, bool first, buffer *out)
{
  const pattern space = {.literal = d->text};
  encoder e = {.name = "the tokens"};
  return pattern_replace(&e, &space, in, first && d->skips_first ? (slice){"", 0} : (slice){" ", 1}, out);
}

/* A step that maps each text alone. */
static brim_status map_one(const decode_step *d, slice in, bool first, buffer *out)
{
  const slice stripped = d->kind == DECODE_STRIP ? strip(d, in) : in;
  switch (d->kind) {
  case DECODE_REPLACE:
    return replace(d, in, out);
  case DECODE_METASPACE:
    return add_spaces(d, in, first, out);
  default:
    return buffer_add(out, stripped.text, stripped.bytes);
  }
}

/* ---- steps that map several texts to one ---- */

static brim_status join(const list *in, bool spelled, list *out)
{
  buffer bytes = {0};
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < in->count && status == BRIM_OK; i++) {
    const slice token = list_at(in, i);
    status =
        spelled ? buffer_add_spelled(&bytes, token.text, token.bytes) : buffer_add(&bytes, token.text, token.bytes);
  }
  if (status == BRIM_OK) status = add_repaired(&out->text, (slice){bytes.data, bytes.count});
  free(bytes.data);
  return status == BRIM_OK ? list_end(out) : status;
}

/* Ends a run of bytes: one text if they are UTF-8, or else U+FFFD for each. */
static brim_status end_bytes(buffer *bytes, list *out)
{
  if (bytes->count == 0) return BRIM_OK;
  if (utf8_check(bytes->data, bytes->count) == bytes->count) {
    BRIM_TRY(buffer_add(&out->text, bytes->data, bytes->count));
    BRIM_TRY(list_end(out));
  } else {
    for (size_t i = 0; i < bytes->count; i++) {
      BRIM_TRY(buffer_add(&out->text, REPLACEMENT, 3));
      BRIM_TRY(list_end(out));
    }
  }
  bytes->count = 0;
  return BRIM_OK;
}

static brim_status join_bytes(const list *in, buffer *bytes, list *out)
{
  for (size_t i = 0; i < in->count; i++) {
    const slice token = list_at(in, i);
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      BRIM_TRY(buffer_add(bytes, &(char){(char)byte}, 1));
      continue;
    }
    BRIM_TRY(end_bytes(bytes, out));
    BRIM_TRY(buffer_add(&out->text, token.text, token.bytes));
    BRIM_TRY(list_end(out));
  }
  return end_bytes(bytes, out);
}

static brim_status run_step(const decode_step *d, const list *in, list *out)
{
  if (d->kind == DECODE_FUSE || d->kind == DECODE_BYTES) return join(in, d->kind == DECODE_BYTES, out);
  if (d->kind == DECODE_FALLBACK) {
    buffer bytes = {0};
    const brim_status status = join_bytes(in, &bytes, out);
    free(bytes.data);
    return status;
  }
  for (size_t i = 0; i < in->count; i++) {
    BRIM_TRY(map_one(d, list_at(in, i), i == 0, &out->text));
    BRIM_TRY(list_end(out));
  }
  return BRIM_OK;
}

/* ---- ids ---- */

static brim_status take_ids(const tokenizer *t, const int32_t *ids, size_t count, bool skip_special, list *out)
{
  for (size_t i = 0; i < count; i++) {
    const int32_t id = ids[i];
    if (id < 0 || id >= t->count || !t->token[id].text || (skip_special && t->special[id])) continue;
    if (!t->has_decoder && out->count > 0) BRIM_TRY(buffer_add(&out->text, " ", 1));
    BRIM_TRY(buffer_add(&out->text, t->token[id].text, t->token[id].bytes));
    BRIM_TRY(list_end(out));
  }
  return BRIM_OK;
}

brim_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char **text,
                             size_t *bytes)
{
  list now = {0};
  brim_status status = take_ids(t, ids, count, skip_special, &now);
  for (size_t k = 0; k < t->decode_count && status == BRIM_OK; k++) {
    list after = {0};
    status = run_step(&t->decode[k], &now, &after);
    list_free(&now);
    now = after;
  }
  if (status == BRIM_OK) status = buffer_add(&now.text, "", 0);
  if (status == BRIM_OK) {
    now.text.data[now.text.count] = '\0';
    *text = now.text.data;
    *bytes = now.text.count;
    now.text.data = NULL;
  }
  list_free(&now);
  return status;
}

/* ---- a token alone ---- */

const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *bytes)
{
  *bytes = id >= 0 && id < t->count ? t->piece[id].bytes : 0;
  return *bytes ? t->piece[id].text : "";
}

/* Appends the bytes of a token that is not the first one of a text. Steps that join the texts of tokens, and those
 * after them, are left out, because they need the whole text. */
brim_status decode_piece(const tokenizer *t, slice token, buffer *out)
{
  buffer turn[2] = {{0}, {0}};
  slice now = token;
  brim_status status = BRIM_OK;
  int which = 0;
  for (size_t k = 0; k < t->decode_count && status == BRIM_OK; k++) {
    const decode_step *d = &t->decode[k];
    const int byte = d->kind == DECODE_FALLBACK ? fallback_byte(now) : -1;
    buffer *to = &turn[which];
    to->count = 0;
    if (d->kind == DECODE_FUSE) break;
    if (byte >= 0)
      status = buffer_add(to, &(char){(char)byte}, 1);
    else if (d->kind == DECODE_BYTES)
      status = buffer_add_spelled(to, now.text, now.bytes);
    else
      status = map_one(d, now, false, to);
    now = (slice){to->data, to->count};
    which = !which;
    if (d->kind == DECODE_BYTES || byte >= 0) break;
  }
  if (status == BRIM_OK) status = buffer_add(out, now.text, now.bytes);
  for (int i = 0; i < 2; i++) free(turn[i].data);
  return status;
}

/* ---- streams ---- */

/* A token's text may depend on the tokens before it. So with each new id, the ids since the last complete text are
 * decoded again, and only the new part of their text is returned. */
struct tokenizer_stream {
  const tokenizer *t;
  bool skip_special;
  int32_t *id;
  size_t count, room, shown; /* shown: ids whose text has been returned */
  char *text;
};

brim_status tokenizer_stream_begin(const tokenizer *t, bool skip_special, tokenizer_stream **out)
{
  *out = brim_try_calloc(1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM_HOST, "no memory to decode tokens");
  (*out)->t = t;
  (*out)->skip_special = skip_special;
  return BRIM_OK;
}

void tokenizer_stream_end(tokenizer_stream *s)
{
  if (!s) return;
  free(s->id);
  free(s->text);
  free(s);
}

static brim_status stream_push(tokenizer_stream *s, int32_t id)
{
  if (s->count == s->room) {
    const size_t room = s->room ? 2 * s->room : 16;
    int32_t *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(s->id, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory to decode %zu tokens", room);
    s->id = grown;
    s->room = room;
  }
  s->id[s->count++] = id;
  return BRIM_OK;
}

brim_status tokenizer_stream_add(tokenizer_stream *s, int32_t id, bool last, const char **text, size_t *bytes)
{
  char *before = NULL;
  size_t before_bytes = 0, all = 0;
  *text = "";
  *bytes = 0;
  if (id >= 0) BRIM_TRY(stream_push(s, id));
  BRIM_TRY(tokenizer_decode(s->t, s->id, s->shown, s->skip_special, &before, &before_bytes));
  free(before);
  free(s->text);
  s->text = NULL;
  BRIM_TRY(tokenizer_decode(s->t, s->id, s->count, s->skip_special, &s->text, &all));
  const bool whole = all < 3 || memcmp(s->text + all - 3, REPLACEMENT, 3) != 0;
  if (all <= before_bytes || (!whole && !last)) return BRIM_OK;
  *text = s->text + before_bytes;
  *bytes = all - before_bytes;
  /* removes the ids whose text was returned before and that the next tokens no longer need */
  memmove(s->id, s->id + s->shown, (s->count - s->shown) * sizeof *s->id);
  s->count -= s->shown;
  s->shown = s->count;
  return BRIM_OK;
}
