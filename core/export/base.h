/* The model that a run began with, as other programs have it: a folder from Hugging Face or a GGUF file. Exports take
 * from it the parts that training does not change: the configuration, the tokenizer, the chat template. */
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
  json_t *config;    /* the same, with the order of its keys */
  json_t *tokenizer; /* tokenizer.json and tokenizer_config.json; NULL: the model has no tokenizer */
  json_t *about;
  const char *chat_template; /* NULL: none */
} brim_export_base;

/* [init] `path`: a folder with config.json, a file in one, or a GGUF file. ELOAD, ECONFIG with the reason. */
brim_status brim_export_base_open(const char *path, brim_export_base *out);
void brim_export_base_close(brim_export_base *base);

/* The trained model, and how it is written. */
typedef struct brim_export_model {
  const brim_parameters *parameters;
  const brim_weights_map *map; /* of a folder; NULL: names are unchanged */
  uint32_t dtype;              /* of a folder: 0: unchanged */
  const brim_gguf_type *type;  /* of a GGUF file */
  const double *add;           /* for each parameter: added to its value in the file; NULL: nothing */
  brim_weights_search search;
  const char *data; /* see BRIM_EXPORT_DATA_KEY */
} brim_export_model;

/* [init] Writes a whole folder aside, reads it again, compares, and renames it; an existing folder is replaced. EIO,
 * ECONFIG, EINVAL. */
brim_status brim_export_write_folder(const brim_export_model *model, brim_export_base *base, const char *path);
/* [init] The same for a GGUF file. */
brim_status brim_export_write_gguf(const brim_export_model *model, brim_export_base *base, const char *path);
/* [init] Reads written weights by brim's own way and compares them with the parameters: bits of `dtype`, or of what
 * each type of GGUF makes of them. EINTERNAL names the first difference. */
brim_status brim_export_check(const brim_export_model *model, const char *path);
/* The type of a GGUF's tensor. Vectors stay in single precision, and so do tensors whose rows are not whole blocks. */
const brim_gguf_type *brim_export_gguf_type(const brim_gguf_type *wanted, const brim_shape *shape);

/* Writes the tokenizer as metadata of a GGUF with `rows` tokens. ECONFIG for one that the format cannot express. */
brim_status brim_export_put_tokenizer(const brim_export_base *base, int64_t rows, brim_gguf_head *head);
/* Compares the tokenizer of a written GGUF with the base's. */
brim_status brim_export_check_tokenizer(const brim_export_base *base, const brim_gguf *file);
#endif
