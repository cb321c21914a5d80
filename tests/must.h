/* For tests whose set-up makes many calls. Include it after cmocka.h. */
#ifndef TESTS_MUST_H
#define TESTS_MUST_H
#include "brim/status.h"

/* Fails the test, with the error's text, unless a call succeeds. */
#define must(call)                                                                                                     \
  do {                                                                                                                 \
    if ((call) != BRIM_OK) fail_msg("%s", brim_error_text());                                                          \
  } while (0)
#endif
