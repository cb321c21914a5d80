/* What fits on which device, as a table for people and as JSON: of brim plan and brim start. */
#ifndef BRIM_CLI_FITS_H
#define BRIM_CLI_FITS_H
#include <jansson.h>
#include <stdbool.h>

#include "cli/cli.h"
#include "drive/fits.h"

/* The devices of the run's backend, and with `others` those of other backends. What drives made for it log is
 * not shown. The drive as for brim_fits_add. */
brim_status brim_cli_find_fits(const brim_cli *cli, brim_drive *drive, bool others, brim_fits *out);
void brim_cli_print_fits(const brim_fits *fits, brim_text *out);
json_t *brim_cli_fits_json(const brim_fits *fits);
#endif
