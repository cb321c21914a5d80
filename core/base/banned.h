/* Functions that may not be used in brim: they overflow the buffer that they write to, or hide that their input was not
 * a number. Every source is compiled with -include of this file (cmake/brim_options.cmake).
 *
 * The functions are declared again as unavailable. Unlike macros (git's banned.h, the source of the idea) this does not
 * affect system headers, including those that come later. */
#ifndef BRIM_BASE_BANNED_H
#define BRIM_BASE_BANNED_H
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRIM_BANNED(function, instead)                                                                                 \
  extern __typeof__(function) function __attribute__((unavailable("banned in brim: use " instead)))

#ifdef __clang__
/* When optimizing, the C library defines ato*() inline in its headers, and clang ignores a ban that follows the
 * definition. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wignored-attributes"
#endif
#ifdef __cplusplus
extern "C" {
#endif

BRIM_BANNED(strcpy, "snprintf or brim_text");
BRIM_BANNED(strcat, "snprintf or brim_text");
BRIM_BANNED(strncpy, "snprintf: strncpy may leave no NUL");
BRIM_BANNED(strncat, "snprintf or brim_text");
BRIM_BANNED(sprintf, "snprintf");
BRIM_BANNED(vsprintf, "vsnprintf");
BRIM_BANNED(strtok, "strcspn and strspn: strtok keeps hidden state");
BRIM_BANNED(atoi, "strtol, and check its result");
BRIM_BANNED(atol, "strtol, and check its result");
BRIM_BANNED(atoll, "strtoll, and check its result");
BRIM_BANNED(atof, "strtod, and check its result");
/* C11 and C++14 removed gets, but the C library still has it, so code that declares it would link. */
extern char *gets(char *line) __attribute__((unavailable("banned in brim: use fgets or getline")));

#ifdef __cplusplus
}
#endif
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#undef BRIM_BANNED
#endif
