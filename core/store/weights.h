/* Weights of before for the parameters of a model: which tensor of the files each is, found out and checked from names
 * and shapes alone; then their values, one tensor after the other. */
#ifndef BRIM_STORE_WEIGHTS_H
#define BRIM_STORE_WEIGHTS_H
#include <jansson.h>

#include "exec/exec.h"
#include "store/weights_files.h"
#include "store/weights_map.h"

/* What exports say of themselves in their metadata: the name of a map, or brim. */
#define BRIM_WEIGHTS_LAYOUT_KEY "layout"
#define BRIM_WEIGHTS_LAYOUT_BRIM "brim"

typedef struct brim_weights_request {
  const char *path;           /* see brim_weights_files_open */
  const char *map;            /* "auto", "none", a name, or the path of a file that ends in ".yaml" */
  const char *except;         /* patterns of the shell: parameters that keep their first values; "": none */
  brim_weights_search search; /* for maps */
  bool of_part;               /* the parameters are those of a part of a model: the files may hold more */
} brim_weights_request;

typedef struct brim_weights brim_weights;
/* [plan] Finds each of the parameters, by name, in the files. ELOAD listing everything that is missing, unexpected or
 * of another shape or type, by the files' names, and what may be meant; or that a file is damaged. ECONFIG for the map
 * or the patterns. The parameters must outlive *out. */
brim_status brim_weights_open(const brim_weights_request *request, const brim_tensor *const *parameter, size_t count,
                              brim_weights **out);
void brim_weights_close(brim_weights *weights); /* NULL is a no-op */
/* [any thread] How many parameters have a tensor in the files, and that of one of them: NULL if it keeps its first
 * value. */
size_t brim_weights_count(const brim_weights *weights);
const brim_safetensor *brim_weights_source(const brim_weights *weights, size_t parameter);
/* [init] The values of one parameter as the model has them, in its type, to `to`. ELOAD if one is not finite. Of the
 * files no more is in memory than some MiB at a time. */
brim_status brim_weights_read(const brim_weights *weights, size_t parameter, void *to);
/* "152 tensors, 343.2 MB, from 'vit.safetensors' by map timm_vit; head.weight and head.bias keep their first values".
 */
void brim_weights_tell(const brim_weights *weights, brim_text *out);
/* What a run's folder keeps: the path, the files with length and hash, the map, and what was not taken from them. With
 * `hashes` every byte is read. NULL with the thread's error text if a file cannot be read. */
json_t *brim_weights_json(const brim_weights *weights, bool hashes);
#define BRIM_WEIGHTS_RECORD_NAME "weights.json"
/* [init] Writes it to a run's folder; and compares it with what is there, if there is anything. EIO; ELOAD if the run
 * began with other weights. */
brim_status brim_weights_record_write(const char *run, const json_t *record);
brim_status brim_weights_record_check(const char *run, const json_t *record);
#endif
