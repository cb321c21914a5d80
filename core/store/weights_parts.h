/* Shared declarations of store/weights*.c. */
#ifndef BRIM_STORE_WEIGHTS_PARTS_H
#define BRIM_STORE_WEIGHTS_PARTS_H
#include "store/weights.h"

/* The source of a parameter's values. */
typedef struct brim_weights_match {
  const brim_safetensor *tensor; /* NULL: no source */
  bool transpose;
  int64_t heads; /* number of heads whose rows have another order in the file; 0: the order is the same */
  double add;    /* see brim_weights_rule */
  bool kept;     /* the configuration says that the parameter keeps its initial value */
} brim_weights_match;

/* A second tensor in the files with the values of a parameter. */
typedef struct brim_weights_twin {
  const brim_safetensor *tensor;
  size_t parameter;
} brim_weights_twin;

struct brim_weights {
  brim_arena arena;
  brim_weights_request request; /* the arena has copies of its texts */
  brim_weights_files *files;
  const brim_weights_map *map; /* NULL: names are unchanged */
  bool is_recognised;          /* brim found the map by the files' tensor names or metadata */
  const brim_tensor *const *parameter;
  size_t count;              /* number of parameters */
  brim_weights_match *match; /* by parameter */
  brim_weights_twin *twin;
  size_t twin_count;
  size_t dropped; /* tensors of the files that the model does not use */
};

/* Chooses the map that the request asks for. ECONFIG, ELOAD. */
brim_status brim_weights_choose_map(brim_weights *weights);

/* ---- mismatches, reported together ---- */

enum brim_weights_kind { BRIM_WEIGHTS_MISSING, BRIM_WEIGHTS_UNEXPECTED, BRIM_WEIGHTS_MISSHAPED, BRIM_WEIGHTS_KINDS };
typedef struct brim_weights_mismatch {
  enum brim_weights_kind kind;
  const char *name;  /* the tensor's name in the file, or the name that it should have there */
  const char *model; /* the model's name; may be NULL */
  const char *text;  /* description */
} brim_weights_mismatch;
typedef struct brim_weights_mismatches {
  brim_weights_mismatch *item;
  size_t count, room;
} brim_weights_mismatches;
void brim_weights_mismatch_add(brim_weights *weights, brim_weights_mismatches *to, brim_weights_mismatch mismatch);
/* Returns OK for an empty list; else ELOAD with all mismatches. Names that differ only in a number share a line. */
brim_status brim_weights_mismatches_status(brim_weights *weights, const brim_weights_mismatches *mismatches);
#endif
