/* Decodes a token to its text. See tokenizer.h.
 *
 * The decoders of the library `tokenizers` convert a list of texts, one for each token, to another list, step by step.
 * brim converts each token by itself: only the first token of a text, and bytes that are not UTF-8, would need their
 * neighbours. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

/* Returns the byte that "<0xNN>" stands for, or -1. */
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

/* Runs a step that converts each text by itself. */
static brim_status map_one(const decode_step *d, slice in, buffer *out)
{
  const slice stripped = d->kind == DECODE_STRIP ? strip(d, in) : in;
  switch (d->kind) {
  case DECODE_REPLACE:
    return replace(d, in, out);
  case DECODE_METASPACE: {
    const pattern space = {.literal = d->text};
    encoder e = {.name = "the tokens"};
    return pattern_replace(&e, &space, in, (slice){" ", 1}, out);
  }
  default:
    return buffer_add(out, stripped.text, stripped.bytes);
  }
}

const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *bytes)
{
  *bytes = id >= 0 && id < t->count ? t->piece[id].bytes : 0;
  return *bytes ? t->piece[id].text : "";
}

/* Appends the bytes of a token that is not the first one of a text. Leaves out steps that join the texts of tokens, and
 * the steps after them, because they need the whole text. */
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
      status = map_one(d, now, to);
    now = (slice){to->data, to->count};
    which = !which;
    if (d->kind == DECODE_BYTES || byte >= 0) break;
  }
  if (status == BRIM_OK) status = buffer_add(out, now.text, now.bytes);
  for (int i = 0; i < 2; i++) free(turn[i].data);
  return status;
}
