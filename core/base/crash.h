/* What is said of a crash: which plugin it was, and where a run can go on. Then the signal takes its course. A bus
 * error in a file that is mapped (it became shorter, or its device failed) is no crash: the message names the file, and
 * the process ends with exit status 5.
 *
 * The signals are SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. Only brim's own program watches for them; a program that
 * has loaded libbrim keeps its handlers. Whoever had a handler before (a sanitizer) gets the signal afterwards. */
#ifndef BRIM_BASE_CRASH_H
#define BRIM_BASE_CRASH_H
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* [init] From here on; of the calling thread its stack may overflow too. */
void brim_crash_watch(void);

/* [init] A call of exit() is reported like a crash, with the plugin that made it, and the program ends with exit status
 * 5 (3 while a plugin is loaded); a policy's is caught, as its crashes are. From here on that happens before the
 * handlers of exit() that libraries have registered until now: call it again after each library that may have been
 * opened. */
void brim_crash_watch_exit(void);
/* [any thread] From here on exit() ends the process as ever: the program is at its end. */
void brim_crash_allow_exit(void);

/* A stack for the handler, if that of the thread is used up. */
typedef struct brim_crash_stack {
  void *bytes; /* NULL: there is none */
  stack_t before;
} brim_crash_stack;
/* [any thread] Of the calling thread, at its beginning and its end; the signals reach it. Does nothing where nobody
 * watches. */
void brim_crash_prepare_thread(brim_crash_stack *out);
void brim_crash_release_thread(const brim_crash_stack *stack);

/* [init] `address` is in the code of a plugin's `file`, both valid for ever. */
void brim_crash_add_code(const void *address, const char *file);
/* [init] The calling thread loads a plugin's `file`, which runs its constructors; NULL: not any more. */
void brim_crash_loading(const char *file);
/* [init] The tables of a plugin's `file` are being read, which end where the plugin says; NULL: not any more. */
void brim_crash_reading(const char *file);
/* [init] A line of what a run has and how it goes on, copied; NULL: none. */
void brim_crash_advice(const char *text);
/* [any thread] If the process is still there in so many seconds, it ends by then, with exit status 5; 0: it does not.
 * Does nothing where nobody watches. */
void brim_crash_end_in(unsigned seconds);

/* For messages: "segmentation fault (SIGSEGV)"; is its address that of data? */
const char *brim_crash_name(int signal);
bool brim_crash_has_address(int signal);
/* "mine.so+0x11b4", for addr2line; false if it is not known. Not for handlers. */
bool brim_crash_place(const void *code, char *out, size_t room);
#endif
