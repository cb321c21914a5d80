/* See stop.h. Handlers may interrupt any code on any thread, so they call only functions that signal-safety(7)
 * allows. */
#include "train/stop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "base/handler_text.h"
#include "base/text.h"
#include "brim/host.h"
#include "store/rundir.h"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU};
#define WATCHED (sizeof watched / sizeof watched[0])

static volatile sig_atomic_t first_signal;
static atomic_llong first_ms; /* time of the first signal, by brim_now(); 0: none yet */
static atomic_bool is_speaking;
static _Atomic(const char *) doing;
static atomic_llong checkpoint_at, commit_at; /* steps */
static char
    resume[BRIM_QUOTED_BYTES + 32]; /* the command that resumes the run: set before the first step, empty until then */

/* ---- texts ---- */

static void answer(int number)
{
  brim_handler_text w;
  brim_handler_text_begin(&w);
  if (number == SIGXCPU) brim_handler_text_add(&w, "processor time limit reached: ");
  brim_handler_text_add(&w, atomic_load(&doing));
  if (number != SIGXCPU) {
    brim_handler_text_add(&w, "; ");
    brim_handler_text_add(&w, number == SIGINT ? "Ctrl-C" : number == SIGTERM ? "SIGTERM" : "SIGHUP");
    brim_handler_text_add(&w, " again ends at once");
  }
  brim_handler_text_add(&w, "\n");
  brim_handler_text_write(&w);
}

static void print_lost(void)
{
  brim_handler_text w;
  const long long checkpoint = atomic_load(&checkpoint_at),
                  lost = atomic_load(&commit_at) - (checkpoint < 0 ? 0 : checkpoint);
  brim_handler_text_begin(&w);
  brim_handler_text_add(&w, "ended at once");
  if (lost > 0) {
    brim_handler_text_add(&w, ": ");
    brim_handler_text_add_number(&w, (uint64_t)lost, 10);
    brim_handler_text_add(&w, lost == 1 ? " step" : " steps");
    if (checkpoint > 0) {
      brim_handler_text_add(&w, " after the checkpoint of step ");
      brim_handler_text_add_number(&w, (uint64_t)checkpoint, 10);
    }
    brim_handler_text_add(&w, lost == 1 ? " is lost" : " are lost");
  } else {
    brim_handler_text_add(&w, "; no step is lost");
  }
  brim_handler_text_add(&w, "\n");
  if (resume[0]) {
    brim_handler_text_add(&w, "resume with: ");
    brim_handler_text_add(&w, resume);
    brim_handler_text_add(&w, "\n");
  }
  brim_handler_text_write(&w);
}

/* ---- signals ---- */

static void on_signal(int number)
{
  const int saved = errno;
  const long long now = (long long)(1e3 * brim_now());
  long long none = 0;
  if (atomic_compare_exchange_strong(&first_ms, &none, now)) {
    first_signal = number;
    if (atomic_load(&is_speaking)) answer(number);
  } else if (now - none >= (long long)(1e3 * BRIM_SIGNAL_ECHO_SECONDS) &&
             number !=
                 SIGXCPU) { /* SIGXCPU does not count as a second signal, because the kernel sends it every second */
    if (atomic_load(&is_speaking)) print_lost();
    signal(number, SIG_DFL);
    raise(number); /* delivered when this handler returns */
  }
  errno = saved;
}

const volatile sig_atomic_t *brim_stop_watch(bool speaks)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
  first_signal = 0;
  atomic_store(&first_ms, 0);
  resume[0] = '\0';
  brim_stop_at(-1, 0);
  brim_stop_doing(BRIM_STOP_BEGINNING);
  atomic_store(&is_speaking, speaks);
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < WATCHED; i++) sigaddset(&action.sa_mask, watched[i]);
  for (size_t i = 0; i < WATCHED; i++) {
    if (watched[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
      continue; /* ignored, as under nohup */
    sigaction(watched[i], &action, NULL);
  }
  return &first_signal;
}

bool brim_stop_wanted(void)
{
  return first_signal != 0;
}

void brim_stop_set_folder(const char *name)
{
  snprintf(resume, sizeof resume, "%s %s", brim_run_resume_words(name), BRIM_QUOTED(name));
}

void brim_stop_doing(const char *what)
{
  atomic_store(&doing, what);
}

void brim_stop_at(int64_t checkpoint_step, int64_t step)
{
  atomic_store(&checkpoint_at, checkpoint_step);
  atomic_store(&commit_at, step);
}
