/* Bytes, UTF-8 and GPT-2's alphabet. See parts.h. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

brim_status buffer_reserve(buffer *b, size_t more)
{
  if (more <= b->room - b->count) return BRIM_OK;
  size_t room = b->room ? b->room : 256;
  while (room - b->count < more) room *= 2;
  char *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(b->data, room);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu bytes of text", room);
  b->data = grown;
  b->room = room;
  return BRIM_OK;
}

brim_status buffer_add(buffer *b, const char *text, size_t bytes)
{
  BRIM_TRY(buffer_reserve(b, bytes + 1));
  if (bytes) memcpy(b->data + b->count, text, bytes);
  b->count += bytes;
  return BRIM_OK;
}

brim_status buffer_add_character(buffer *b, int32_t c)
{
  char text[4];
  const int count = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int i = count - 1; i > 0; i--, c >>= 6) text[i] = (char)(0x80 | (c & 63));
  text[0] = (char)(first[count] | c);
  return buffer_add(b, text, (size_t)count);
}

/* ---- UTF-8 ---- */

int utf8_length(const char *text, size_t bytes)
{
  const unsigned char *u = (const unsigned char *)text;
  if (u[0] < 0x80) return 1;
  if (u[0] < 0xc2 || u[0] > 0xf4) return -1;
  const int length = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
  /* the second byte excludes overlong forms, surrogates and values above U+10FFFF */
  const unsigned char low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
  if (bytes < 2 || u[1] < low || u[1] > high) return -1;
  for (int i = 2; i < length; i++)
    if ((size_t)i >= bytes || (u[i] & 0xc0) != 0x80) return -i;
  return length;
}

size_t utf8_check(const char *text, size_t bytes)
{
  size_t at = 0;
  while (at < bytes) {
    uint64_t eight;
    if (at + sizeof eight <= bytes && (memcpy(&eight, text + at, sizeof eight), !(eight & 0x8080808080808080u))) {
      at += sizeof eight;
      continue;
    }
    const int length = utf8_length(text + at, bytes - at);
    if (length < 0) return at;
    at += (size_t)length;
  }
  return bytes;
}

int32_t utf8_character(const char *text)
{
  const unsigned char *u = (const unsigned char *)text;
  if (u[0] < 0x80) return u[0];
  if (u[0] < 0xe0) return (u[0] & 31) << 6 | (u[1] & 63);
  if (u[0] < 0xf0) return (u[0] & 15) << 12 | (u[1] & 63) << 6 | (u[2] & 63);
  return (u[0] & 7) << 18 | (u[1] & 63) << 12 | (u[2] & 63) << 6 | (u[3] & 63);
}

bool is_space(int32_t c)
{
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

uint64_t hash_bytes(const char *text, size_t bytes)
{
  uint64_t hash = bytes * 0x9E3779B97F4A7C15u;
  for (; bytes >= 8; text += 8, bytes -= 8) {
    uint64_t x;
    memcpy(&x, text, 8);
    hash = (hash ^ x) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  uint64_t x = 0;
  memcpy(&x, text, bytes);
  hash = (hash ^ x) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 29;
}

/* ---- GPT-2's alphabet ----
 *
 * A byte that is printable in Latin-1 is written as itself, the others, in order, as U+0100 and the following
 * characters: 0 to 32, 127 to 160, 173. */

static int byte_of_symbol(int32_t c)
{
  if ((c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xff && c != 0xad)) return c;
  if (c < 0x100 || c > 0x143) return -1;
  c -= 0x100;
  return c <= 32 ? c : c <= 66 ? c - 33 + 127 : 173;
}

int32_t symbol_of_byte(unsigned char byte)
{
  if (byte <= 32) return 0x100 + byte;
  if (byte >= 127 && byte <= 160) return 0x100 + 33 + byte - 127;
  return byte == 173 ? 0x143 : byte;
}

brim_status buffer_add_symbols(buffer *b, const char *text, size_t bytes)
{
  BRIM_TRY(buffer_reserve(b, 2 * bytes + 1));
  for (size_t i = 0; i < bytes; i++) {
    const int32_t c = symbol_of_byte((unsigned char)text[i]);
    if (c >= 0x80) b->data[b->count++] = (char)(0xc0 | c >> 6);
    b->data[b->count++] = (char)(c < 0x80 ? c : 0x80 | (c & 63));
  }
  return BRIM_OK;
}

brim_status buffer_add_spelled(buffer *b, const char *token, size_t bytes)
{
  const size_t start = b->count;
  BRIM_TRY(buffer_reserve(b, bytes + 1));
  for (size_t at = 0; at < bytes; at += (size_t)utf8_length(token + at, bytes - at)) {
    const int byte = byte_of_symbol(utf8_character(token + at));
    if (byte < 0) {
      b->count = start;
      return buffer_add(b, token, bytes);
    }
    b->data[b->count++] = (char)byte;
  }
  return BRIM_OK;
}
