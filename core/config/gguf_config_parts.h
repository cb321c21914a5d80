/* Shared declarations of config/gguf_config*.c: names of GGUF's metadata and of config.json. */
#ifndef BRIM_CONFIG_GGUF_CONFIG_PARTS_H
#define BRIM_CONFIG_GGUF_CONFIG_PARTS_H
#include "config/gguf_config.h"

typedef struct brim_gguf_model {
  const char *architecture, *model_type, *class_name;
} brim_gguf_model;
extern const brim_gguf_model brim_gguf_models[]; /* the last entry has an architecture of NULL */

/* A key after the architecture's name. `kind`: the type of value that brim writes. */
typedef struct brim_gguf_row {
  const char *key, *config;
  enum brim_gguf_kind kind;
} brim_gguf_row;
/* The rows of the network, and those of rope_scaling; in the last row the key is NULL. */
extern const brim_gguf_row brim_gguf_rows[], brim_gguf_scaling_rows[];

/* Parameters of rope type llama3. brim writes them as keys of its own, because llama.cpp stores only the divisors. For
 * files of other programs brim assumes the parameters of Meta's models. */
#define BRIM_GGUF_LLAMA3_ROWS 4
typedef struct brim_gguf_llama3_row {
  const char *key, *config;
  double usual;
} brim_gguf_llama3_row;
extern const brim_gguf_llama3_row brim_gguf_llama3_rows[BRIM_GGUF_LLAMA3_ROWS];
/* The divisor that rope type llama3 gives frequency number `i` of dims / 2 (transformers, modeling_rope_utils.py). */
double brim_gguf_llama3_divisor(double factor, double low, double high, double original, double base, int64_t i,
                                int64_t dims);
#define BRIM_GGUF_FACTOR_MAX 65536 /* most frequencies of a rotary embedding */
#endif
