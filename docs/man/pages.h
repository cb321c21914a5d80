/* Manual pages, generated from the table of commands, the tables of their options, and the schema of configurations. */
#ifndef BRIM_MAN_PAGES_H
#define BRIM_MAN_PAGES_H
#include <stdio.h>

#include "cli/cli.h"

/* Writes text with all roff escapes. */
void page_text(FILE *page, const char *text);
void page_text_n(FILE *page, const char *text, size_t length);
/* The first lines: title, section, and NAME. */
void page_begin(FILE *page, const char *name, int section, const char *help);

void page_program(FILE *page);                                      /* brim(1) */
void page_command(FILE *page, const brim_command *command);         /* brim-train(1) */
void page_configuration(FILE *page, const brim_registry *registry); /* brim.yaml(5) */
#endif
