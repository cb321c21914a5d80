#include "observe/png.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

static void put_u32(uint8_t *out, uint32_t value)
{
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void add_chunk(brim_text *out, const char *type, const void *data, uint32_t bytes)
{
  uint8_t word[4];
  put_u32(word, bytes);
  brim_text_add_n(out, (const char *)word, 4);
  brim_text_add_n(out, type, 4);
  if (bytes > 0) brim_text_add_n(out, data, bytes);
  uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)type, 4);
  if (bytes > 0) crc = crc32(crc, data, bytes);
  put_u32(word, (uint32_t)crc);
  brim_text_add_n(out, (const char *)word, 4);
}

brim_status brim_png_add(brim_text *out, const uint8_t *pixels, uint32_t rows, uint32_t columns, uint32_t channels)
{
  static const char signature[] = "\x89PNG\r\n\x1a\n";
  const size_t line = (size_t)columns * channels, raw_bytes = rows * (line + 1);
  uLongf bytes = compressBound(raw_bytes);
  uint8_t head[13] = {0}, *raw = brim_try_malloc(raw_bytes), *packed = brim_try_malloc(bytes);
  brim_status status = raw && packed ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a picture");
  for (uint32_t y = 0; y < rows && status == BRIM_OK; y++) {
    raw[y * (line + 1)] = 0; /* no filter */
    memcpy(raw + y * (line + 1) + 1, pixels + y * line, line);
  }
  if (status == BRIM_OK && compress2(packed, &bytes, raw, raw_bytes, 9) != Z_OK)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory to compress a picture");
  if (status == BRIM_OK) {
    put_u32(head, columns);
    put_u32(head + 4, rows);
    head[8] = 8; /* bits */
    head[9] = channels == 3 ? 2 : 0;
    brim_text_add_n(out, signature, sizeof signature - 1);
    add_chunk(out, "IHDR", head, sizeof head);
    add_chunk(out, "IDAT", packed, (uint32_t)bytes);
    add_chunk(out, "IEND", NULL, 0);
  }
  free(raw);
  free(packed);
  return status;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void brim_base64_add(brim_text *out, const void *bytes, size_t count)
{
  const uint8_t *from = bytes;
  for (size_t i = 0; i < count; i += 3) {
    const uint32_t more = (uint32_t)(count - i < 3 ? count - i : 3);
    const uint32_t word =
        (uint32_t)from[i] << 16 | (more > 1 ? (uint32_t)from[i + 1] << 8 : 0) | (more > 2 ? from[i + 2] : 0);
    char four[4];
    for (uint32_t k = 0; k < 4; k++) four[k] = k <= more ? digits[word >> (18 - 6 * k) & 63] : '=';
    brim_text_add_n(out, four, 4);
  }
}

bool brim_base64_read(const char *text, void *bytes, size_t *count)
{
  uint8_t *to = bytes;
  const size_t room = *count;
  uint32_t word = 0, have = 0;
  *count = 0;
  for (; *text && *text != '='; text++) {
    const char *digit = strchr(digits, *text);
    if (!digit) return false;
    word = word << 6 | (uint32_t)(digit - digits);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    if (*count == room) return false;
    to[(*count)++] = (uint8_t)(word >> have);
  }
  while (*text == '=') text++;
  return *text == '\0';
}
