/* Messages of signal handlers, formatted and written with functions that signal-safety(7) allows. */
#ifndef BRIM_BASE_HANDLER_TEXT_H
#define BRIM_BASE_HANDLER_TEXT_H
#include <stddef.h>
#include <stdint.h>

/* timeout(1) signals the process and then its group: two signals within this time count as one request. */
#define BRIM_SIGNAL_ECHO_SECONDS 0.3

#define BRIM_HANDLER_TEXT_BYTES 8192 /* a longer message is truncated */

typedef struct brim_handler_text {
  char text[BRIM_HANDLER_TEXT_BYTES];
  size_t length;
} brim_handler_text;

/* Empties the text. On a terminal the text begins with a newline, as a progress line or ^C may be on the current
 * line. */
void brim_handler_text_begin(brim_handler_text *out);
void brim_handler_text_add(brim_handler_text *out, const char *text);
/* Adds a number in base 2 to 16. */
void brim_handler_text_add_number(brim_handler_text *out, uint64_t value, unsigned base);
/* Writes to standard error, ignoring errors. */
void brim_handler_text_write(const brim_handler_text *text);
#endif
