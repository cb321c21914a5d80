#include "base/call_stack.h"

#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

#define FRAMES 64

static _Thread_local sigjmp_buf *unwinding; /* NULL if this thread is not unwinding */

void brim_call_stack_prepare(void)
{
  void *frame[1];
  (void)!backtrace(frame, 1);
}

int brim_call_stack_read(uintptr_t *address, int room)
{
  void *frame[FRAMES];
  sigjmp_buf broken;
  sigset_t faults, before;
  if (sigsetjmp(broken, 1)) return 0; /* 1: siglongjmp also restores the set of blocked signals */
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  unwinding = &broken;
  pthread_sigmask(SIG_UNBLOCK, &faults, &before);
  const int frames = backtrace(frame, room < FRAMES ? room : FRAMES);
  unwinding = NULL;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  for (int i = 0; i < frames; i++) address[i] = (uintptr_t)frame[i];
  return frames;
}

void brim_call_stack_on_signal(void)
{
  sigjmp_buf *const broken = unwinding;
  unwinding = NULL;
  if (broken) siglongjmp(*broken, 1);
}
