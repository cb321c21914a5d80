/* llama.cpp's names of pre-tokenizers, with the steps in the tokenizer.json of models that use them. */
#include <jansson.h>
#include <string.h>

#include "store/gguf_tokenizer.h"

#define NFC "{\"type\":\"NFC\"}"
#define SPLIT(regex)                                                                                                   \
  "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
/* ByteLevel alone splits by GPT-2's regular expression. */
#define WORDS "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define DIGITS "{\"type\":\"Digits\",\"individual_digits\":true}"

/* Regular expressions as written in JSON. */
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define AROUND(numbers)                                                                                                \
  ENDINGS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" numbers                                                          \
          "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA3 SPLIT(AROUND("\\\\p{N}{1,3}")) "," BYTES
#define QWEN2 SPLIT(AROUND("\\\\p{N}")) "," BYTES
#define CASES(ending)                                                                                                  \
  "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"                                      \
  "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+" ending                                                                      \
  "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"                                     \
  "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*" ending
#define AFTER "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TEKKEN SPLIT(CASES("") "|\\\\p{N}" AFTER) "," BYTES
#define GPT4O SPLIT(CASES(ENDINGS "?") "|\\\\p{N}{1,3}" AFTER) "," BYTES
#define DEEPSEEK                                                                                                       \
  SPLIT("\\\\p{N}{1,3}")                                                                                               \
  "," SPLIT("[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+") "," SPLIT(                                             \
      "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?"           \
      "[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+") "," BYTES

static const brim_gguf_pre table[] = {
    {"gpt-2", NULL, WORDS, false, false},
    {"smollm", NULL, DIGITS "," WORDS, false, false},
    {"starcoder", NULL, DIGITS "," WORDS, false, false},
    {"refact", NULL, DIGITS "," WORDS, false, false},
    {"command-r", NFC, DIGITS "," WORDS, false, false},
    {"llama-bpe", NULL, LLAMA3, true, true},
    {"llama3", NULL, LLAMA3, true, true},
    {"llama-v3", NULL, LLAMA3, true, true},
    {"falcon3", NULL, LLAMA3, true, true},
    {"qwen2", NFC, QWEN2, false, false},
    {"deepseek-r1-qwen", NFC, QWEN2, false, false},
    {"tekken", NULL, TEKKEN, true, true},
    {"gpt-4o", NULL, GPT4O, false, false},
    {"llama4", NULL, GPT4O, false, false},
    {"deepseek-v3", NULL, DEEPSEEK, false, false},
};
#define COUNT (sizeof table / sizeof table[0])

const brim_gguf_pre *brim_gguf_pre_named(const char *name)
{
  for (size_t i = 0; i < COUNT; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

void brim_gguf_pre_list(brim_text *out)
{
  for (size_t i = 0; i < COUNT; i++) brim_text_printf(out, "%s%s", i ? ", " : "", table[i].name);
}

/* Whether the steps split text in the same way; ByteLevel's trim_offsets does not change tokens. */
static bool are_same_steps(const json_t *have, const brim_gguf_pre *pre)
{
  brim_text text = {0};
  brim_text_printf(&text, "[%s]", pre->steps);
  json_t *want = json_loads(brim_text_str(&text), 0, NULL);
  brim_text_release(&text);
  bool same = json_array_size(want) == json_array_size(have);
  for (size_t i = 0; same && i < json_array_size(have); i++) {
    json_t *a = json_copy(json_array_get(have, i)), *b = json_array_get(want, i);
    json_object_del(a, "trim_offsets");
    json_object_del(b, "trim_offsets");
    same = json_equal(a, b);
    json_decref(a);
  }
  json_decref(want);
  return same;
}

const char *brim_gguf_pre_of(const char *pre_tokenizer_json)
{
  json_t *root = json_loads(pre_tokenizer_json, JSON_DECODE_ANY, NULL);
  const json_t *inner = json_object_get(root, "pretokenizers");
  json_t *list = inner ? json_deep_copy(inner) : json_pack("[O]", root);
  const char *name = NULL;
  for (size_t i = 0; i < COUNT && !name; i++)
    if (are_same_steps(list, &table[i])) name = table[i].name;
  json_decref(list);
  json_decref(root);
  return name;
}
