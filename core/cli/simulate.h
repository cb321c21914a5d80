/* Printing of simulations. */
#ifndef BRIM_CLI_SIMULATE_H
#define BRIM_CLI_SIMULATE_H
#include "cli/cli.h"
#include "simulate/simulate.h"

/* One combination of a sweep; without a sweep there is one. */
typedef struct brim_sim_shown {
  const char *label; /* the words that differ from the other combinations: "policy=robust"; "": there are no others */
  const char *const *word;
  size_t words;
  const brim_scenario *scenario;
  brim_simulation result;
} brim_sim_shown;

/* Prints the timeline and the costs of one simulation, or a table of several. */
void brim_cli_print_simulations(const brim_sim_shown *shown, size_t count, brim_text *out);
/* Owned by the caller. */
json_t *brim_cli_simulations_json(const brim_sim_shown *shown, size_t count);
#endif
