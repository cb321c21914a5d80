/* Tests which code the message of a crash blames: only calls that are still on the stack count. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crash.h"
#include "unit/crash_plugin.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* sanitizers have their own handlers and frames */
#else
enum { SANITIZED = 0 };
#endif

static int *volatile nowhere = (int *)16;
static crash_work *volatile no_code = (crash_work *)(uintptr_t)32;

static const crash_plugin *plugin(void)
{
  static const crash_plugin *found;
  void *file = found ? NULL : dlopen(BRIM_BUILD_DIR "/tests/crash_plugin.so", RTLD_NOW | RTLD_LOCAL);
  if (!found) found = file ? dlsym(file, "the_crash_plugin") : NULL;
  assert_non_null(found);
  return found;
}

/* Runs `crash` in a child process; returns its output. */
static const char *message_of(crash_work *crash)
{
  static char text[4096];
  int ends[2];
  const void *code = *(void *const *)plugin();
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}; /* cmocka handles these signals */
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) signal(signals[i], SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    brim_crash_watch();
    brim_crash_add_code(code, "the.so");
    crash(NULL);
    _exit(0);
  }
  int status = 0;
  size_t length = 0;
  close(ends[1]);
  for (ssize_t n = 1; n > 0; length += n > 0 ? (size_t)n : 0)
    n = read(ends[0], text + length, sizeof text - 1 - length);
  text[length] = '\0';
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  return text;
}

static void assert_blames(crash_work *crash, const char *culprit)
{
  char begin[256];
  if (SANITIZED) skip();
  const char *text = message_of(crash);
  snprintf(begin, sizeof begin, "error: %s has crashed: segmentation fault", culprit);
  if (strncmp(text, begin, strlen(begin)) != 0) fail_msg("expected '%s', got '%s'", begin, text);
}

/* ---- crashes ---- */

static void nothing(void *context)
{
  (void)context;
}

__attribute__((noinline)) static void writes(void *context)
{
  (void)context;
  *nowhere = 1;
}

/* The frame of this function is as large as those of the calls before it, and still contains their values. */
__attribute__((noinline)) static int writes_below_old_calls(void)
{
  volatile char room[1024];
  room[0] = 0;
  writes(NULL);
  return room[0];
}

static void brim_itself(void *context)
{
  (void)context;
  (void)plugin()->call(nothing, NULL, 20);
  (void)writes_below_old_calls();
}

__attribute__((noinline)) static int jumps(void *context)
{
  volatile char room[1024];
  room[0] = 0;
  no_code(context);
  return room[0];
}

static void brim_jumps(void *context)
{
  (void)plugin()->call(nothing, NULL, 20);
  (void)jumps(context);
}

static void plugin_jumps(void *context)
{
  (void)plugin()->call(no_code, context, 0);
}

static void brim_called_by_a_plugin(void *context)
{
  (void)plugin()->call(writes, context, 2);
}

static void library_called_by_a_plugin(void *context)
{
  (void)context;
  (void)plugin()->clear(memset, (char *)nowhere);
}

static void plugin_itself(void *context)
{
  (void)context;
  (void)plugin()->write(nowhere);
}

/* The caller calls alloca, so the unwinder finds its frame by the frame pointer, which this function destroys. */
__attribute__((noinline)) static void breaks_the_stack(void)
{
  void **frame = __builtin_frame_address(0);
  frame[0] = (void *)64;
  writes(NULL);
}

__attribute__((noinline)) static void on_a_broken_stack(void *context)
{
  volatile size_t count = 64;
  volatile char *room = __builtin_alloca(count);
  (void)context;
  room[0] = 0;
  breaks_the_stack();
  room[1] = 0;
}

/* ---- tests ---- */

static void calls_that_have_returned_are_not_blamed(void **state)
{
  assert_blames(brim_itself, "brim");
  assert_blames(brim_jumps, "brim");
}

static void calls_of_a_plugin_are_named(void **state)
{
  assert_blames(plugin_itself, "the plugin the.so");
  assert_blames(library_called_by_a_plugin, "code that the plugin the.so called");
  assert_blames(brim_called_by_a_plugin, "brim, called by the plugin the.so,");
  assert_blames(plugin_jumps, "code that the plugin the.so called (as far as the stack shows)");
}

static void a_damaged_stack_gets_a_message_too(void **state)
{
  assert_blames(on_a_broken_stack, "brim");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_that_have_returned_are_not_blamed),
      cmocka_unit_test(calls_of_a_plugin_are_named),
      cmocka_unit_test(a_damaged_stack_gets_a_message_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
