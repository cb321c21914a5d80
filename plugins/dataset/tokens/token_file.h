/* A file of token ids, mapped into memory. llm.c and nanoGPT (github.com/karpathy) write such files:
 *
 *     llm.c      a header of 256 little-endian int32: 20240520, version 1, number of tokens; then uint16
 *                for Llama 3's tokens: 20240801, version 7, number of tokens; then uint32
 *     raw        only tokens, uint16 or uint32, little-endian, as numpy's tofile writes them
 *
 * The header is not trusted: its number of tokens must agree with the file's size. */
#ifndef TOKEN_FILE_H
#define TOKEN_FILE_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

enum token_format { TOKEN_FORMAT_AUTO, TOKEN_FORMAT_U16, TOKEN_FORMAT_U32, TOKEN_FORMAT_BYTES };

#define TOKEN_HEADER_BYTES 1024
#define TOKEN_COUNT_MAX INT32_MAX /* the maximum number that a header can hold */

typedef struct token_file {
  const void *map; /* the whole file; NULL if it is empty or not open */
  size_t map_bytes;
  const unsigned char *tokens; /* the tokens in the map, little-endian */
  int64_t count;
  int32_t width; /* bytes per token: 1, 2 or 4 */
} token_file;

/* Maps a file. `format` is the format of raw tokens; `auto` means uint16 unless there is a header, and `bytes` means
 * bytes in any case. Returns ELOAD with the error in the file; *out is then empty. */
brim_status token_file_open(const char *path, enum token_format format, token_file *out);
void token_file_close(token_file *file); /* no-op if empty */
/* Does the same for an open regular file, which the caller closes. `name` is used in messages. */
brim_status token_file_map(int fd, const char *name, enum token_format format, token_file *out);
/* Writes the header of a file of `count` tokens (at most TOKEN_COUNT_MAX) of width 2 or 4. */
void token_file_header(unsigned char out[TOKEN_HEADER_BYTES], int64_t count, int32_t width);

/* Returns token `i` of a file, which must be in [0, count). */
static inline uint32_t token_file_at(const token_file *f, int64_t i)
{
  const unsigned char *t = f->tokens + i * f->width;
  if (f->width == 1) return t[0];
  if (f->width == 2) return (uint32_t)t[0] | (uint32_t)t[1] << 8;
  return (uint32_t)t[0] | (uint32_t)t[1] << 8 | (uint32_t)t[2] << 16 | (uint32_t)t[3] << 24;
}

/* Returns the index of the first token that is not below `vocabulary`, or -1. */
int64_t token_file_find_beyond(const token_file *file, int64_t vocabulary);
#endif
