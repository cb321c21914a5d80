/* A look as text: tables of devices, queue and runs, then advice. */
#ifndef BRIM_CLI_MONITOR_PRINT_H
#define BRIM_CLI_MONITOR_PRINT_H
#include "base/text.h"
#include "monitor/look.h"

/* Texts in it are those of the look, so the caller shows it with brim_cli_print. */
void brim_monitor_print(brim_look *look, brim_text *out);
#endif
