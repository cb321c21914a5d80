/* brim eval --text and --choices: the probability that a language model gives to a text, and the answer that it
 * prefers. */
#ifndef BRIM_CLI_EVAL_TEXTS_H
#define BRIM_CLI_EVAL_TEXTS_H
#include "cli/cli.h"

/* As the user typed them; NULL: not given. */
typedef struct brim_eval_texts {
  const char *text, *stride, *context;
  const char *choices, *shots, *shots_from;
  const char *checkpoint;
  bool json;
} brim_eval_texts;

/* Whether the user gave one of the two options. */
bool brim_eval_wants_texts(const brim_eval_texts *wish);
/* Checks that the options are compatible. ECONFIG. */
brim_status brim_eval_texts_check(const brim_eval_texts *wish);
/* [init] Evaluates the run or model that the first operand names, and prints the result. ECONFIG, ELOAD, and the
 * statuses of brim_score. */
brim_status brim_eval_texts_run(const brim_cli *cli, const brim_operands *operands, const brim_eval_texts *wish);
#endif
