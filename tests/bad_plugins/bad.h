/* Parses $BRIM_BAD, "FUNCTION:WHAT" or "FUNCTION:WHAT:STEP", on rank $BRIM_BAD_RANK only if that is set; and implements
 * the faults that all functions share. */
#ifndef BRIM_TESTS_BAD_H
#define BRIM_TESTS_BAD_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "brim/brim.h"

typedef struct bad_words {
  char function[32], what[32];
  long long from;
} bad_words;

static inline bad_words bad_read(void)
{
  bad_words w = {.from = 0};
  const char *text = getenv("BRIM_BAD"), *only = getenv("BRIM_BAD_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (only && rank && strcmp(only, rank) != 0) return w;
  if (text) (void)sscanf(text, "%31[^:]:%31[^:]:%lld", w.function, w.what, &w.from); /* the tests' own syntax */
  return w;
}

static inline int bad_names(const char *function)
{
  return strcmp(bad_read().function, function) == 0;
}

static inline int bad_is(const char *function, const char *what)
{
  return bad_names(function) && strcmp(bad_read().what, what) == 0;
}

static inline long long bad_from(void)
{
  return bad_read().from;
}

static volatile int bad_zero;
static int *volatile bad_pointer = (int *)16; /* sanitizers would report NULL first */

__attribute__((noinline)) static int bad_deep(volatile char *above)
{
  volatile char page[4096];
  page[0] = above[0];
  return bad_zero ? 1 : bad_deep(page) + page[0];
}

/* Starts a process that outlives this one and inherits its open files. */
static inline void bad_leave_helper(void)
{
  if (fork() != 0) return;
  (void)nanosleep(&(struct timespec){.tv_sec = 30}, NULL);
  _exit(0);
}

/* Faults that crash or block a program, from `step` on; otherwise returns OK. */
static inline brim_status bad_in(const char *function, long long step)
{
  volatile char top = 0;
  if (!bad_names(function) || step < bad_from()) return BRIM_OK;
  if (bad_is(function, "helper")) bad_leave_helper();
  if (bad_is(function, "helper") || bad_is(function, "segv")) *bad_pointer = 1;
  if (bad_is(function, "fpe")) raise(SIGFPE);
  if (bad_is(function, "xcpu")) raise(SIGXCPU);
  if (bad_is(function, "ill")) __builtin_trap();
  if (bad_is(function, "abort")) abort();
  if (bad_is(function, "exit")) exit(0);
  if (bad_is(function, "quick_exit")) quick_exit(0);
  if (bad_is(function, "leaves")) _exit(0);
  if (bad_is(function, "stack")) return bad_deep(&top);
  while (bad_is(function, "loop")) continue;
  while (bad_is(function, "naps") && access("awake", F_OK) != 0) /* a file that the test makes */
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  while (bad_is(function, "sleeps")) (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  if (bad_is(function, "silent")) return BRIM_EDEVICE;
  if (bad_is(function, "unknown")) return 77;
  if (bad_is(function, "interrupted")) return BRIM_EINTERRUPTED;
  if (bad_is(function, "fails")) return brim_fail(BRIM_ECONFIG, "this policy does not want to");
  if (bad_is(function, "notsup")) return BRIM_ENOTSUP;
  return BRIM_OK;
}

/* Runs the faults that occur while the file is loaded. */
__attribute__((constructor)) static void bad_load(void)
{
  (void)bad_in("load", 0);
}
#endif
