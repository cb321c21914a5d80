/* What fits on which device, as a table for people and as JSON: of brim plan and brim start. */
#ifndef BRIM_CLI_FITS_H
#define BRIM_CLI_FITS_H
#include <jansson.h>
#include <stdbool.h>

#include "cli/cli.h"
#include "session/fits.h"

/* The devices of the session's backend, and with `others` those of other backends. What sessions made for it log is
 * not shown. The session as for brim_fits_add. */
brim_status brim_cli_find_fits(const brim_cli *cli, brim_session *session, bool others, brim_fits *out);
void brim_cli_print_fits(const brim_fits *fits, brim_text *out);
json_t *brim_cli_fits_json(const brim_fits *fits);
#endif
