/* The model from which a run began, in another program's format: a folder from Hugging Face or a GGUF file. Exports
 * take from it the parts that training does not change: the configuration, the tokenizer, the chat template. */
#ifndef BRIM_EXPORT_BASE_H
#define BRIM_EXPORT_BASE_H
#include <jansson.h>

#include "base/gguf.h"
#include "export/export.h"
#include "param/yaml.h"

typedef struct brim_export_base {
  brim_arena arena;
  const char *path;
  brim_gguf *gguf;   /* NULL: a folder */
  brim_yaml *tree;   /* config.json, with positions */
  json_t *config;    /* config.json as JSON, with the order of its keys */
  json_t *tokenizer; /* tokenizer.json and tokenizer_config.json; NULL: the model has no tokenizer */
  json_t *about;
  const char *chat_template; /* NULL: none */
} brim_export_base;

/* [init] `path`: a folder with config.json, a file in one, or a GGUF file. ELOAD, ECONFIG with the reason. */
brim_status brim_export_base_open(const char *path, brim_export_base *out);
void brim_export_base_close(brim_export_base *base);

/* The trained model, and the format in which it is written. */
typedef struct brim_export_model {
  const brim_parameters *parameters;
  const brim_weights_map *map; /* the map for a folder; NULL: names are unchanged */
  uint32_t dtype;              /* for a folder: the type of the values; 0: unchanged */
  const brim_gguf_type *type;  /* for a GGUF file: the type of the values */
  const double *add;           /* for each parameter: a number added to its values in the file; NULL: none */
  brim_weights_search search;
  const char *data; /* see BRIM_EXPORT_DATA_KEY */
} brim_export_model;

/* [init] Writes a whole folder under a temporary name, reads it again, compares, and renames it; replaces an existing
 * folder. EIO, ECONFIG, EINVAL. */
brim_status brim_export_write_folder(const brim_export_model *model, brim_export_base *base, const char *path);
/* [init] The same for a GGUF file. */
brim_status brim_export_write_gguf(const brim_export_model *model, brim_export_base *base, const char *path);
/* [init] Reads the written weights with brim's own reader and compares them with the parameters, bit by bit, after
 * conversion to `dtype` or to each tensor's GGUF type. EINTERNAL names the first difference. */
brim_status brim_export_check(const brim_export_model *model, const char *path);
/* The type of a tensor in a GGUF file. Vectors stay in single precision, and so do tensors whose rows are not whole
 * blocks. */
const brim_gguf_type *brim_export_gguf_type(const brim_gguf_type *wanted, const brim_shape *shape);

/* Adds the tokenizer to the metadata of a GGUF file with `rows` tokens. ECONFIG if the format cannot express it. */
brim_status brim_export_put_tokenizer(const brim_export_base *base, int64_t rows, brim_gguf_head *head);
/* Compares the tokenizer of a written GGUF file with the base's. */
brim_status brim_export_check_tokenizer(const brim_export_base *base, const brim_gguf *file);
#endif
