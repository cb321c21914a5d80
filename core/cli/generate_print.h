/* The output of `brim generate`. The model generates texts side by side; this prints them one after another. */
#ifndef BRIM_CLI_GENERATE_PRINT_H
#define BRIM_CLI_GENERATE_PRINT_H
#include <jansson.h>

#include "cli/generate_model.h"
#include "data/data.h"

/* A text in progress. */
typedef struct brim_generate_part {
  /* bytes of an incomplete character; complete characters of new tokens that are not printed yet. */
  brim_text bytes, shown;
  json_t *numbers; /* with --json: the tokens of the text */
  int64_t tokens;
  bool ended;
} brim_generate_part;

typedef struct brim_generate_printer {
  const brim_data *data;
  bool has_text; /* tokens have text; otherwise their numbers are printed */
  bool json;
  const brim_text *prompt;
  const int32_t *prompt_tokens;
  int64_t prompt_count;
  brim_generate_part *part; /* side by side */
  int64_t count, printed;   /* count: texts; the first `printed` of them are complete and printed */
  bool any;                 /* a text was printed before this one */
  json_t *texts;            /* the texts, with --json */
} brim_generate_printer;

/* Begins `count` texts. */
brim_status brim_generate_print_begin(brim_generate_printer *printer, int64_t count);
/* Functions for brim_generate_options: take and end. */
brim_status brim_generate_print_token(void *printer, int64_t index, int32_t token);
brim_status brim_generate_print_end(void *printer, int64_t index);
/* Completes the texts that have not ended. */
brim_status brim_generate_print_rest(brim_generate_printer *printer);
/* Prints everything as JSON. */
brim_status brim_generate_print_json(brim_generate_printer *printer, const brim_generate_model *model, uint64_t seed);
void brim_generate_printer_release(brim_generate_printer *printer);
#endif
