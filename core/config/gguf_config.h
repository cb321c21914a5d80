/* Converts the description of a network between a GGUF file's metadata and Hugging Face's config.json. */
#ifndef BRIM_CONFIG_GGUF_CONFIG_H
#define BRIM_CONFIG_GGUF_CONFIG_H
#include "base/gguf.h"
#include "param/yaml.h"

/* Makes the config.json that corresponds to the file's metadata and tensors; the origin of each value is its key in the
 * file. A key of the network that brim does not know keeps its name, so that the family's file refuses it. ELOAD if the
 * file cannot be read, or brim does not know its architecture. */
brim_status brim_gguf_config(brim_arena *arena, const char *path, brim_yaml **out);
brim_status brim_gguf_config_of(brim_arena *arena, const brim_gguf *file, brim_yaml **out);

/* The architecture's name in GGUF for a model_type of config.json; NULL: the format has none that brim writes. */
const char *brim_gguf_architecture_of(const char *model_type);
/* The number of heads in a config.json that the key (attention.head_count or attention.head_count_kv) stands for; 0:
 * none. */
int64_t brim_gguf_config_heads(const brim_yaml *config, const char *key);
/* Names of the tensors in which llama.cpp stores the divisors of the frequencies for rope_type llama3 and longrope. */
typedef struct brim_gguf_factors {
  const char *name;
  const float *value;
  int64_t count;
} brim_gguf_factors;
#define BRIM_GGUF_FACTORS_MAX 2
/* Reads the divisors; *count is 0 for other types. ECONFIG if the numbers do not describe frequencies. */
brim_status brim_gguf_read_factors(const brim_yaml *config, brim_arena *arena,
                                   brim_gguf_factors out[BRIM_GGUF_FACTORS_MAX], size_t *count);
/* Finds a value of the rotary embedding, in rope_parameters or where version 4 of transformers stores it; NULL:
 * none. */
const brim_yaml *brim_gguf_find_rope(const brim_yaml *config, const char *key);
/* Adds the values of a config.json to the metadata, without those of the tokenizer; brim_family_complete first adds
 * those that it lacks. ECONFIG, with the place, for a
 * value that the format cannot express. */
brim_status brim_gguf_put_config(const brim_yaml *config, brim_gguf_head *head);
#endif
