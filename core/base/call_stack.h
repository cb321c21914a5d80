/* The calls that lead to the calling thread's current instruction, found by unwinding. */
#ifndef BRIM_BASE_CALL_STACK_H
#define BRIM_BASE_CALL_STACK_H
#include <stdint.h>

/* [init] Loads the library for unwinding, which a signal handler must not load. */
void brim_call_stack_prepare(void);
/* [any thread] Addresses of code, innermost first; returns their number. In a signal handler the interrupted
 * instruction is one of them. The list ends early where the stack is damaged, or at code without unwind tables, such
 * as code that a library generates at run time. */
int brim_call_stack_read(uintptr_t *address, int room);
/* [any thread] The handler of SIGSEGV and SIGBUS calls this first. If unwinding caused the signal, because the stack is
 * damaged, this does not return; instead, the interrupted brim_call_stack_read returns 0. */
void brim_call_stack_on_signal(void);
#endif
