/* Loads existing weights into the parameters of a model: matches the files' tensors with parameters by names and
 * shapes alone, and then reads the values, one tensor at a time. */
#ifndef BRIM_STORE_WEIGHTS_H
#define BRIM_STORE_WEIGHTS_H
#include <jansson.h>

#include "exec/exec.h"
#include "store/weights_files.h"
#include "store/weights_map.h"

/* The metadata key in which exports store their layout: the name of a map, or brim. */
#define BRIM_WEIGHTS_LAYOUT_KEY "layout"
#define BRIM_WEIGHTS_LAYOUT_BRIM "brim"

typedef struct brim_weights_request {
  const char *path;           /* see brim_weights_files_open */
  const char *map;            /* "auto", "none", a name, or the path of a file that ends in ".yaml" */
  const char *except;         /* shell patterns: parameters that keep their initial values; "": none */
  brim_weights_search search; /* for maps */
  bool of_part;               /* the parameters belong to a part of a model, so the files may have more tensors */
} brim_weights_request;

typedef struct brim_weights brim_weights;
/* [plan] Finds each parameter by name in the files. ELOAD listing all tensors that are missing, unexpected or of
 * another shape or type, by their names in the files, with suggestions; also ELOAD for a damaged file. ECONFIG for the
 * map or the patterns. The parameters must outlive *out. */
brim_status brim_weights_open(const brim_weights_request *request, const brim_tensor *const *parameter, size_t count,
                              brim_weights **out);
void brim_weights_close(brim_weights *weights); /* may be NULL */
/* [any thread] The number of parameters that have a tensor in the files, and the tensor of one parameter: NULL if it
 * keeps its initial value. */
size_t brim_weights_count(const brim_weights *weights);
const brim_safetensor *brim_weights_source(const brim_weights *weights, size_t parameter);
/* [init] Writes the values of one parameter, in the model's type and order, to `to`. ELOAD if one is not finite. Keeps
 * only a few MiB of the files in memory at a time. */
brim_status brim_weights_read(const brim_weights *weights, size_t parameter, void *to);
/* Prints "152 tensors, 343.2 MB, from 'vit.safetensors' using map timm_vit; head.weight and head.bias keep their
 * initial values". */
void brim_weights_print(const brim_weights *weights, brim_text *out);
/* The record of the weights for the run's folder: the path, the files with length and hash, the map, and the tensors
 * that were not used. With `hashes`, reads every byte of the files. NULL with the thread's error text if a file cannot
 * be read. */
json_t *brim_weights_json(const brim_weights *weights, bool hashes);
#define BRIM_WEIGHTS_RECORD_NAME "weights.json"
/* [init] Writes the record to a run's folder; compares it with an existing one, if any. EIO; ELOAD if the run began
 * with other weights. */
brim_status brim_weights_record_write(const char *run, const json_t *record);
brim_status brim_weights_record_check(const char *run, const json_t *record);
#endif
