/* Reports crashes: the message names the plugin that crashed and how to resume the run; then the signal takes effect. A
 * bus error in a mapped file (the file was truncated, or its device failed) is not treated as a crash: the message
 * names the file, and the process ends with exit status 5.
 *
 * The signals are SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. Only the brim program watches for them; a program that
 * loads libbrim keeps its handlers. A handler that was installed earlier (of a sanitizer) gets the signal
 * afterwards. */
#ifndef BRIM_BASE_CRASH_H
#define BRIM_BASE_CRASH_H
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* [init] Starts watching. On the calling thread, stack overflows are reported too. */
void brim_crash_watch(void);

/* [init] From here on, a call of exit() is reported like a crash, with the plugin that called it, and the program ends
 * with exit status 5 (3 while a plugin is loaded). If a policy calls exit(), brim handles that like a crash of the
 * policy. The report comes before the exit handlers that libraries have registered so far: call this function again
 * after loading a library that may register one. */
void brim_crash_watch_exit(void);
/* [any thread] From here on, exit() ends the process as usual, because the program has finished. */
void brim_crash_allow_exit(void);

/* An alternate stack for the signal handler, for the case that the thread's own is exhausted. */
typedef struct brim_crash_stack {
  void *bytes; /* NULL: not allocated */
  stack_t before;
} brim_crash_stack;
/* [any thread] Each thread calls these at its beginning and end; the signals are unblocked in it. Does nothing if the
 * process does not watch for crashes. */
void brim_crash_prepare_thread(brim_crash_stack *out);
void brim_crash_release_thread(const brim_crash_stack *stack);

/* [init] Registers the plugin `file`, whose code contains `address`. The string must stay valid until the process
 * ends. */
void brim_crash_add_code(const void *address, const char *file);
/* [init] Records that the calling thread is loading the plugin `file`, so that a crash in its constructors names the
 * plugin; NULL: loading has ended. */
void brim_crash_loading(const char *file);
/* [init] Records that brim is reading the tables of the plugin `file`, so that a crash names it if a table has no end
 * mark; NULL: reading has ended. */
void brim_crash_reading(const char *file);
/* [init] Sets the line of a crash report that names the run's checkpoint and the command that resumes the run; the text
 * is copied. NULL: no line. */
void brim_crash_advice(const char *text);
/* [any thread] Ends the process with exit status 5 if it still runs after `seconds`; 0 cancels this. Does nothing if
 * the process does not watch for crashes. */
void brim_crash_end_in(unsigned seconds);

/* The signal's name for messages, "segmentation fault (SIGSEGV)"; whether the signal comes with a data address. */
const char *brim_crash_name(int signal);
bool brim_crash_has_address(int signal);
/* Formats a code address for addr2line, "mine.so+0x11b4"; false if unknown. Not async-signal-safe. */
bool brim_crash_place(const void *code, char *out, size_t room);
#endif
