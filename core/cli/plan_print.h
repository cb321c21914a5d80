/* Prints, as text and as JSON, the plans that fit on each device (also for `brim start`), the frontier of plans, and
 * the time of a step. */
#ifndef BRIM_CLI_PLAN_PRINT_H
#define BRIM_CLI_PLAN_PRINT_H
#include "cli/cli.h"
#include "drive/fits.h"
#include "planner/cards.h"
#include "planner/footprint.h"
#include "planner/frontier.h"
#include "planner/times.h"
#include "planner/traffic.h"

/* Finds the plans that fit on each device of the run's backend and, with `others`, of other backends. Suppresses log
 * messages of the drives that it makes. `drive`: see brim_fits_add. */
brim_status brim_cli_find_fits(const brim_cli *cli, brim_drive *drive, bool others, brim_fits *out);
void brim_cli_print_fits(const brim_fits *fits, brim_text *out);
json_t *brim_cli_fits_json(const brim_fits *fits);
void brim_cli_print_frontier(const brim_frontier *frontier, const brim_setup *setup, brim_text *out);
json_t *brim_cli_frontier_json(const brim_frontier *frontier, const brim_setup *setup);
/* Prints nothing if there are no cards. */
void brim_cli_print_cards(const brim_cards *cards, const brim_setup *setup, brim_text *out);
json_t *brim_cli_cards_json(const brim_cards *cards);
void brim_cli_print_times(const brim_times *times, brim_text *out);
json_t *brim_cli_times_json(const brim_times *times);
/* Writes "bf16, ", or "" for fp32, to `out`, and returns it. */
#define BRIM_CLI_PRECISION_BYTES 16
const char *brim_cli_format_precision(const brim_setup *setup, char out[BRIM_CLI_PRECISION_BYTES]);
/* Prints the operations that the device computes more slowly than it could (planner/strict.h). */
void brim_cli_print_slower(const brim_drive *drive, const brim_plan *plan);
/* `device`: its name. */
void brim_cli_print_traffic(const brim_traffic *traffic, const char *device, brim_text *out);
json_t *brim_cli_traffic_json(const brim_traffic *traffic, const char *device);
/* Formats milliseconds with three digits, and with a mark, which the notes explain, if the time was not measured
 * directly. Returns `out`. */
const char *brim_cli_format_time(double seconds, enum brim_basis basis, char *out, size_t room);
void brim_cli_print_basis_notes(const bool used[BRIM_BASIS_GUESSED + 1], brim_text *out);
extern const char *const brim_basis_names[]; /* of enum brim_basis: "timed", ... */
/* Prints all memory that the process takes on a device other than the host; nothing if the backend does not measure
 * it. */
void brim_cli_print_taken(const brim_drive *drive, const brim_plan *plan, brim_text *out);
void brim_cli_add_taken(const brim_drive *drive, const brim_plan *plan, json_t *out);
/* Draws a program of the plan into a file; see brim_plan_svg. EIO. */
brim_status brim_cli_write_picture(const brim_drive *drive, const brim_plan *plan, const brim_program *program,
                                   const char *title, const char *path);
/* [plan] Prints the output of `brim plan` for a federation, as text or JSON, and writes a picture to a file unless its
 * path is NULL. `server_bytes`: the peak of the server's process, if clients have separate processes. Returns the
 * errors of planning, brim_planner_check and brim_cli_write_picture. */
brim_status brim_cli_show_federation(brim_drive *drive, const brim_footprint *host, uint64_t server_bytes, bool json,
                                     const char *picture);
#endif
