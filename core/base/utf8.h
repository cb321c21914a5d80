/* UTF-8, one code point at a time. */
#ifndef BRIM_BASE_UTF8_H
#define BRIM_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the code point at *s, and advances *s; -1, without advancing, if the bytes are not valid UTF-8 (for example
 * overlong forms, surrogates and values above U+10FFFF). *s must be < end. */
int32_t brim_utf8_next(const char **s, const char *end);
/* Whether the whole text is valid UTF-8. */
bool brim_utf8_is_valid(const char *text);
/* Returns the text to output for the character at *s, and advances *s: the character, or U+FFFD for an invalid byte;
 * *bytes: its length. *s must be < end. */
const char *brim_utf8_take(const char **s, const char *end, size_t *bytes);
/* Writes a code point's 1 to 4 bytes to `out`, and returns their number. */
size_t brim_utf8_put(uint32_t c, char *out);
/* Whether the environment (LC_ALL, LC_CTYPE, LANG) says that terminals show UTF-8. brim does not call setlocale,
 * because numbers in its files must not depend on it. */
bool brim_utf8_is_locale(void);
/* Whether the character may be unescaped in a YAML document: false for control characters, U+FEFF, U+FFFE, U+FFFF. */
bool brim_utf8_is_yaml(int32_t c);
/* Whether the character ends a line in YAML: \n, \r, U+0085, U+2028, U+2029. */
bool brim_utf8_is_break(int32_t c);
#endif
