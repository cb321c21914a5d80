/* Encodes and decodes records for scripts/bench/tokenizer_ids.py.
 *
 *     brim_tokenize TOKENIZER encode|template|decode <records >results
 *
 * A record is a number of bytes (uint32) and these bytes: a text, or ids (int32). So is a result. Reports on standard
 * error in seconds of processor time: reading the tokenizer, and all records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "brim/status.h"
#include "tokenizer.h"

typedef struct ids {
  int32_t *id;
  size_t count, room;
} ids;

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *grown(void *p, size_t bytes)
{
  p = realloc(p, bytes);
  if (p) return p;
  fprintf(stderr, "no memory\n");
  exit(1);
}

static void check(brim_status status)
{
  if (status == BRIM_OK) return;
  fprintf(stderr, "%s\n", brim_error_text());
  exit(1);
}

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  ids *to = context;
  if (to->count + count > to->room) {
    to->room = 2 * (to->count + count);
    to->id = grown(to->id, to->room * sizeof *to->id);
  }
  memcpy(to->id + to->count, tokens, count * sizeof *tokens);
  to->count += count;
  return BRIM_OK;
}

static void put(const void *data, size_t bytes)
{
  const uint32_t size = (uint32_t)bytes;
  if (fwrite(&size, sizeof size, 1, stdout) != 1 || fwrite(data, 1, bytes, stdout) != bytes) exit(1);
}

/* Returns the seconds that the record takes. */
static double run(const tokenizer *t, const char *what, const char *data, size_t bytes, ids *to)
{
  const double start = now();
  double took;
  if (what[0] == 'd') {
    const int32_t *id = (const int32_t *)(const void *)data;
    size_t length = 0, used = 0, piece_bytes;
    for (size_t i = 0; i < bytes / sizeof *id; i++, length += piece_bytes)
      (void)tokenizer_piece(t, id[i], &piece_bytes);
    char *text = grown(NULL, length + 1);
    for (size_t i = 0; i < bytes / sizeof *id; i++) {
      const char *piece = tokenizer_piece(t, id[i], &piece_bytes);
      if (tokenizer_is_special(t, id[i])) continue;
      memcpy(text + used, piece, piece_bytes);
      used += piece_bytes;
    }
    took = now() - start;
    put(text, used);
    free(text);
    return took;
  }
  to->count = 0;
  check(tokenizer_encode(t, "the text", data, bytes, what[0] == 't' ? TOKENIZER_TEMPLATE : 0, take, to));
  took = now() - start;
  put(to->id, to->count * sizeof *to->id);
  return took;
}

int main(int argc, char **argv)
{
  tokenizer *t = NULL;
  ids to = {NULL, 0, 0};
  char *data = NULL;
  uint32_t bytes;
  double took = 0;
  if (argc != 3) return 2;
  const double start = now();
  check(tokenizer_open(argv[1], true, &t));
  const double loaded = now() - start;
  while (fread(&bytes, sizeof bytes, 1, stdin) == 1) {
    data = grown(data, (size_t)bytes + 1);
    if (fread(data, 1, bytes, stdin) != bytes) return 1;
    took += run(t, argv[2], data, bytes, &to);
  }
  fprintf(stderr, "%f %f\n", loaded, took);
  free(data);
  free(to.id);
  tokenizer_free(t);
  return 0;
}
