/* What the files of store/weights share. */
#ifndef BRIM_STORE_WEIGHTS_PARTS_H
#define BRIM_STORE_WEIGHTS_PARTS_H
#include "store/weights.h"

/* Where a parameter's values come from. */
typedef struct brim_weights_match {
  const brim_safetensor *tensor; /* NULL: from nowhere */
  bool transpose;
  bool kept; /* the configuration says that it keeps its first value */
} brim_weights_match;

/* A tensor that is another one of the model. */
typedef struct brim_weights_twin {
  const brim_safetensor *tensor;
  size_t parameter;
} brim_weights_twin;

struct brim_weights {
  brim_arena arena;
  brim_weights_request request; /* its texts are copied */
  brim_weights_files *files;
  const brim_weights_map *map; /* NULL: names are as they are */
  bool is_recognised;          /* the map was found by the files' names, or by what they say of themselves */
  const brim_tensor *const *parameter;
  size_t count;              /* of parameters */
  brim_weights_match *match; /* by parameter */
  brim_weights_twin *twin;
  size_t twin_count;
  size_t dropped; /* tensors of the files that the model has no use for */
};

/* Chooses the map that the request asks for. ECONFIG, ELOAD. */
brim_status brim_weights_choose_map(brim_weights *weights);

/* ---- what does not fit, told at once ---- */

enum brim_weights_kind { BRIM_WEIGHTS_MISSING, BRIM_WEIGHTS_UNEXPECTED, BRIM_WEIGHTS_MISSHAPED, BRIM_WEIGHTS_KINDS };
typedef struct brim_weights_mismatch {
  enum brim_weights_kind kind;
  const char *name;  /* the file's, or what it would be there */
  const char *model; /* the model's name; NULL: it has none */
  const char *text;  /* what there is to say of it */
} brim_weights_mismatch;
typedef struct brim_weights_mismatches {
  brim_weights_mismatch *item;
  size_t count, room;
} brim_weights_mismatches;
void brim_weights_mismatch_add(brim_weights *weights, brim_weights_mismatches *to, brim_weights_mismatch mismatch);
/* OK if there are none; else ELOAD with all of them: those whose names differ in a number only are one line. */
brim_status brim_weights_mismatches_status(brim_weights *weights, const brim_weights_mismatches *mismatches);
#endif
