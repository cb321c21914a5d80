/* Fuzzes the GGUF reader, the configuration and the tokenizer that it reads: an accepted file must be readable to its
 * last byte, every key and tensor be found by its name, and its tokenizer be converted to valid JSON. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/gguf_config.h"
#include "store/gguf_tokenizer.h"

static volatile double sink; /* so that the reads are not optimized away */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_values(const brim_gguf *file)
{
  for (size_t i = 0; i < brim_gguf_value_count(file); i++) {
    const brim_gguf_value *v = brim_gguf_value_at(file, i);
    const char *text;
    uint64_t at = 0, length;
    double number;
    if (brim_gguf_find(file, v->key) != v) abort();
    while (brim_gguf_next_text(v, &at, &text, &length))
      if (length > 0) sink += text[length - 1];
    if (v->count > 0 && brim_gguf_number(v, v->count - 1, &number)) sink += number;
    if (brim_gguf_number(v, v->count, &number)) abort();
  }
}

static void read_tensors(const brim_gguf *file)
{
  float room[BRIM_GGUF_BLOCK_MAX];
  for (size_t i = 0; i < brim_gguf_tensor_count(file); i++) {
    const brim_gguf_tensor *t = brim_gguf_tensor_at(file, i);
    if (brim_gguf_tensor_find(file, t->name) != t) abort();
    for (uint64_t at = 0; at < t->bytes; at += t->type->bytes) {
      t->type->unpack(t->data + at, 1, room);
      sink += (double)room[t->type->count - 1];
    }
  }
}

static void read_config(const brim_gguf *file)
{
  brim_arena arena = {0};
  brim_yaml *tree = NULL;
  brim_text text = {0};
  if (brim_gguf_config_of(&arena, file, &tree) == BRIM_OK)
    brim_yaml_print(tree, &text, true);
  else if (brim_error_text()[0] == '\0')
    abort();
  brim_text_release(&text);
  brim_arena_release(&arena);
}

static void read_tokenizer(const brim_gguf *file)
{
  brim_text text[2] = {{0}, {0}};
  if (brim_gguf_tokenizer_text(file, &text[0], &text[1]) != BRIM_OK && brim_error_text()[0] == '\0') abort();
  for (int i = 0; i < 2; i++) brim_text_release(&text[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  brim_gguf *file = NULL;
  if (brim_gguf_parse(bytes, size, "input", &file) != BRIM_OK) {
    if (brim_error_text()[0] == '\0') abort();
    return 0;
  }
  read_values(file);
  read_tensors(file);
  read_config(file);
  read_tokenizer(file);
  brim_gguf_close(file);
  return 0;
}
