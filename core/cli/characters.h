/* Assembles whole UTF-8 characters from bytes that arrive in pieces. */
#ifndef BRIM_CLI_CHARACTERS_H
#define BRIM_CLI_CHARACTERS_H
#include "base/text.h"

/* Moves all complete characters from the front of `bytes` to the end of `out`. Invalid bytes become U+FFFD; an
 * incomplete character stays in `bytes`, unless this is the `last` call. */
void brim_characters_take(brim_text *bytes, bool last, brim_text *out);
#endif
