/* For handlers of signals: a message that is put together and written by what signal-safety(7) allows. */
#ifndef BRIM_BASE_HANDLER_TEXT_H
#define BRIM_BASE_HANDLER_TEXT_H
#include <stddef.h>
#include <stdint.h>

/* timeout(1) signals the process and then its group: two signals within this time are one wish. */
#define BRIM_SIGNAL_ECHO_SECONDS 0.3

#define BRIM_HANDLER_TEXT_BYTES 8192 /* the rest of a longer message is left out */

typedef struct brim_handler_text {
  char text[BRIM_HANDLER_TEXT_BYTES];
  size_t length;
} brim_handler_text;

/* Empties it. On a terminal it begins with a newline: a progress line may be there, or the ^C. */
void brim_handler_text_begin(brim_handler_text *out);
void brim_handler_text_add(brim_handler_text *out, const char *text);
/* Digits of base 2 to 16. */
void brim_handler_text_add_number(brim_handler_text *out, uint64_t value, unsigned base);
/* To standard error, as far as that takes it. */
void brim_handler_text_write(const brim_handler_text *text);
#endif
