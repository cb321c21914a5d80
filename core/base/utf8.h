/* UTF-8, one code point at a time. */
#ifndef BRIM_BASE_UTF8_H
#define BRIM_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at *s, which moves on behind it; -1, and *s stays, if the bytes are not valid UTF-8 (overlong forms,
 * surrogates and what lies above U+10FFFF included). *s < end. */
int32_t brim_utf8_next(const char **s, const char *end);
/* What is to be written of what is at *s, which moves on: the character, or U+FFFD for a byte that is in none; *bytes
 * of it. *s < end. */
const char *brim_utf8_take(const char **s, const char *end, size_t *bytes);
/* May it stand in a YAML document as it is? Not control characters, U+FEFF, U+FFFE, U+FFFF. */
bool brim_utf8_is_yaml(int32_t c);
/* Does it end a line in YAML: \n, \r, U+0085, U+2028, U+2029? */
bool brim_utf8_is_break(int32_t c);
#endif
