/* Finds the places of tokens. See align.h.
 *
 * The text consists of the bytes of the tokens one after another, with two exceptions: a tokenizer may add a space
 * before the text (Llama 2), and a special token may remove the spaces beside it. */
#include "align.h"

#include <string.h>

static bool is_space_byte(char c)
{
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* If the token is the next part of the text at *at, moves *at to its end and returns true. */
static bool take(const char *text, size_t bytes, const char *piece, size_t count, size_t *at)
{
  const size_t left = bytes - *at;
  if (count <= left && memcmp(text + *at, piece, count) == 0) {
    *at += count;
    return true;
  }
  if (piece[0] != ' ' || count - 1 > left || memcmp(text + *at, piece + 1, count - 1) != 0) return false;
  *at += count - 1;
  return true;
}

bool chat_align(const tokenizer *t, const int32_t *token, size_t count, const char *text, size_t bytes, uint32_t *start)
{
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *piece = tokenizer_piece(t, token[i], &length);
    if (length == 0) return false;
    start[i] = (uint32_t)at;
    if (take(text, bytes, piece, length, &at)) continue;
    while (at < bytes && is_space_byte(text[at])) at++; /* spaces that a special token removes */
    start[i] = (uint32_t)at;
    if (!take(text, bytes, piece, length, &at)) return false;
  }
  start[count] = (uint32_t)at;
  while (at < bytes && is_space_byte(text[at])) at++;
  return at == bytes;
}
