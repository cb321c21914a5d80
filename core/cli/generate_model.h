/* The model for `brim generate`: a run, a folder in Hugging Face's format, or a GGUF file. */
#ifndef BRIM_CLI_GENERATE_MODEL_H
#define BRIM_CLI_GENERATE_MODEL_H
#include "cli/cli.h"
#include "train/generate.h"

typedef struct brim_generate_model {
  const char *path;      /* as the user typed it */
  const char *run;       /* equal to `path` if it names a run; else NULL */
  char checkpoint[4096]; /* name of the run's checkpoint; else "" */
  brim_config *config;
} brim_generate_model;

/* [init] Finds the model that the first operand names, and composes its configuration with the other operands. `which`:
 * the checkpoint of a run, as the user typed it, or NULL. ECONFIG, ELOAD. */
brim_status brim_generate_model_open(const brim_cli *cli, const brim_operands *operands, const char *which,
                                     brim_generate_model *out);
void brim_generate_model_close(brim_generate_model *model);
/* [init] Sets the sampling and the tokens that end a text to the values in generation_config.json in the folder of the
 * model's weights; does nothing without such a file. ELOAD. */
brim_status brim_generate_model_defaults(const brim_generate_model *model, brim_generate_options *out);
#endif
