/* Bytes that come in pieces, as whole characters of UTF-8. */
#ifndef BRIM_CLI_CHARACTERS_H
#define BRIM_CLI_CHARACTERS_H
#include "base/text.h"

/* Moves what makes whole characters from the front of `bytes` to the end of `out`. What cannot be one becomes U+FFFD; a
 * beginning that may still go on stays, unless it is the `last` time. */
void brim_characters_take(brim_text *bytes, bool last, brim_text *out);
#endif
