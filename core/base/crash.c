/* The signal handler calls only functions that POSIX allows in handlers, pread, and the unwinder, which is loaded
 * before. Unwinding shows whether a plugin called the code that crashed. If unwinding fails (generated code, a jump to
 * an address without code, a damaged stack), the handler searches the stack's words instead: a word that points into a
 * plugin's code is a return address, or was left by an earlier call. */
#include "base/crash.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/call_stack.h"
#include "base/guard.h"
#include "base/handler_text.h"
#include "base/mapping.h"

/* Several times the size of the registers that the kernel saves for a signal with AVX-512 and AMX. */
#define STACK_BYTES ((size_t)64 * 1024)
#define LOOK_BYTES 16384 /* bytes to search of the stack of the thread that crashed */
#define FRAMES 64        /* maximum number of calls that lead to the crash, or to exit() */
#define WAIT_MS 2000     /* wait for another thread that is writing its message */

static const struct {
  int signal;
  const char *name;
  bool has_address;
} crashes[] = {{SIGSEGV, "segmentation fault (SIGSEGV)", true},
               {SIGBUS, "bus error (SIGBUS)", true},
               {SIGFPE, "arithmetic exception (SIGFPE)", false},
               {SIGILL, "illegal instruction (SIGILL)", false},
               {SIGABRT, "abort (SIGABRT)", false}};
#define CRASHES (sizeof crashes / sizeof crashes[0])

/* The code of a plugin. Entries are never removed from the list. */
typedef struct code {
  struct code *next;
  uintptr_t base, start, end; /* base: the address at which offset 0 of the file is mapped */
  const char *file;
} code;

static _Atomic(code *) codes; /* the plugins' */
static code brims;            /* brim's own code */
static bool watched;
static pid_t watcher; /* the process that called brim_crash_watch; its children have no run to resume */
static struct sigaction before[CRASHES];
static char advice[2][4300];
static _Atomic(const char *) current_advice;
static _Atomic(const char *) read_file; /* the plugin file whose tables are being read */
static atomic_int report_state;         /* 1: a thread is writing the message; 2: it is written */
static atomic_bool exit_allowed;
static _Thread_local const char
    *loaded_file; /* the file that this thread is loading, whose code addresses are not known yet */

const char *brim_crash_name(int signal)
{
  for (size_t i = 0; i < CRASHES; i++)
    if (crashes[i].signal == signal) return crashes[i].name;
  return "signal";
}

bool brim_crash_has_address(int signal)
{
  for (size_t i = 0; i < CRASHES; i++)
    if (crashes[i].signal == signal) return crashes[i].has_address;
  return false;
}

/* ---- the plugin that code belongs to ---- */

static int find_code(struct dl_phdr_info *info, size_t size, void *context)
{
  code *c = context;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
    if (c->start < start || c->start >= start + segment->p_memsz) continue;
    c->base = info->dlpi_addr;
    c->start = start;
    c->end = start + segment->p_memsz;
    return 1;
  }
  return 0;
}

/* Finds the code that contains the address. */
static bool look_up(const void *address, code *out)
{
  *out = (code){.start = (uintptr_t)address};
  return dl_iterate_phdr(find_code, out) != 0;
}

void brim_crash_add_code(const void *address, const char *file)
{
  code c;
  if (!look_up(address, &c)) return;
  c.file = file;
  code *kept = brim_xcalloc(1, sizeof *kept);
  c.next = atomic_load(&codes);
  *kept = c;
  atomic_store(&codes, kept);
}

static bool is_in(const code *c, uintptr_t address)
{
  return address >= c->start && address < c->end;
}

/* The plugin whose code contains the address, or NULL. */
static const code *code_of(uintptr_t address)
{
  const code *c = atomic_load(&codes);
  while (c && !is_in(c, address)) c = c->next;
  return c;
}

bool brim_crash_place(const void *address, char *out, size_t room)
{
  Dl_info info;
  if (!address || dladdr(address, &info) == 0 || !info.dli_fname) return false;
  const char *slash = strrchr(info.dli_fname, '/');
  snprintf(out, room, "%s+0x%llx", slash ? slash + 1 : info.dli_fname,
           (unsigned long long)((uintptr_t)address - (uintptr_t)info.dli_fbase));
  return true;
}

/* ---- in the handler ---- */

static void add_hex(brim_handler_text *m, uintptr_t value)
{
  brim_handler_text_add(m, "0x");
  brim_handler_text_add_number(m, value, 16);
}

/* The place where a thread crashed. If the instruction is the first of a function, also the address to which the
 * function returns. */
typedef struct place {
  uintptr_t at, stack, caller; /* caller: 0 if unknown */
} place;

/* Reads the top of a stack through a file, because the stack may have fewer than `words` words. Returns the number
 * read. */
static size_t read_stack(uintptr_t stack, uintptr_t *word, size_t words)
{
  const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = fd < 0 ? 0 : pread(fd, word, words * sizeof *word, (off_t)(stack & ~(uintptr_t)7));
  if (fd >= 0) close(fd);
  return bytes < 0 ? 0 : (size_t)bytes / sizeof *word;
}

static place place_of(const void *context)
{
  const ucontext_t *c = context;
  place p = {0};
#if defined(__x86_64__)
  p.at = (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
  p.stack = (uintptr_t)c->uc_mcontext.gregs[REG_RSP];
  (void)read_stack(p.stack, &p.caller, 1);
#elif defined(__aarch64__)
  p.at = (uintptr_t)c->uc_mcontext.pc;
  p.stack = (uintptr_t)c->uc_mcontext.sp;
  p.caller = (uintptr_t)c->uc_mcontext.regs[30];
#else
  (void)c;
#endif
  return p;
}

/* The code that a crash comes from. */
typedef struct origin {
  const code *plugin; /* NULL: unknown, or the code is brim's own */
  uintptr_t at;       /* address in the plugin's code; else that of the instruction that crashed */
  enum { ORIGIN_ITSELF, ORIGIN_CALLED, ORIGIN_CALLED_BRIM, ORIGIN_GUESSED } how;
} origin;

/* Follows the calls from the instruction outwards. Returns false if they do not lead to code of brim or a plugin. */
static bool follow_calls(uintptr_t at, origin *out)
{
  uintptr_t frame[FRAMES];
  const int frames = brim_call_stack_read(frame, FRAMES);
  bool in_brim = false;
  int i = 0;
  while (i < frames && frame[i] != at) i++; /* skips the frames of the signal handler */
  for (; i < frames; i++) {
    const code *c = code_of(frame[i]);
    in_brim = in_brim || is_in(&brims, frame[i]);
    if (c) *out = (origin){c, frame[i], in_brim ? ORIGIN_CALLED_BRIM : ORIGIN_CALLED};
    if (c) return true;
  }
  return in_brim;
}

/* Searches the stack's words for a plugin, unless brim's code jumped to the instruction. */
static void search_stack(const place *p, origin *out)
{
  uintptr_t word[LOOK_BYTES / sizeof(uintptr_t)];
  const size_t words = read_stack(p->stack, word, sizeof word / sizeof word[0]);
  if (is_in(&brims, p->caller)) return;
  if (code_of(p->caller)) *out = (origin){code_of(p->caller), p->caller, ORIGIN_GUESSED};
  for (size_t i = 0; i < words && !out->plugin; i++)
    if (code_of(word[i])) *out = (origin){code_of(word[i]), word[i], ORIGIN_GUESSED};
}

static origin origin_of(const place *p)
{
  origin from = {code_of(p->at), p->at, ORIGIN_ITSELF};
  if (!from.plugin && !follow_calls(p->at, &from)) search_stack(p, &from);
  return from;
}

/* The plugin that crashed or called exit(), and the place in it. */
typedef struct culprit {
  const char *before, *file, *after; /* "the plugin ", its path, "" */
  const code *code;                  /* NULL: unknown */
  uintptr_t at;
} culprit;

static culprit culprit_of_crash(const origin *from)
{
  static const char *const start[] = {"the plugin ", "code that the plugin ", "brim, called by the plugin ",
                                      "code that the plugin "};
  static const char *const end[] = {"", " called", ",", " called (as far as the stack shows)"};
  const code *c = from->plugin;
  if (loaded_file && (!c || from->how != ORIGIN_ITSELF))
    return (culprit){"the plugin ", loaded_file, ", which brim was loading,", NULL, 0};
  if (c) return (culprit){start[from->how], c->file, end[from->how], c, from->at};
  return (culprit){"brim", "", "", NULL, 0};
}

static culprit culprit_of_exit(void)
{
  uintptr_t frame[FRAMES];
  const int frames = brim_call_stack_read(frame, FRAMES);
  for (int i = 0; i < frames; i++) {
    const code *c = code_of(frame[i]);
    if (c) return (culprit){"the plugin ", c->file, "", c, frame[i]};
  }
  if (loaded_file) return (culprit){"the plugin ", loaded_file, ", which brim was loading,", NULL, 0};
  return (culprit){"a library", "", "", NULL, 0};
}

static void add_culprit(brim_handler_text *m, const culprit *blamed)
{
  brim_handler_text_begin(m);
  brim_handler_text_add(m, "error: ");
  brim_handler_text_add(m, blamed->before);
  brim_handler_text_add(m, blamed->file);
  brim_handler_text_add(m, blamed->after);
}

static void add_culprit_place(brim_handler_text *m, const culprit *blamed)
{
  brim_handler_text_add(m, "\n  ");
  if (blamed->code) {
    brim_handler_text_add(m, "at ");
    add_hex(m, blamed->at - blamed->code->base);
    brim_handler_text_add(m, " of the file; `brim check ");
    brim_handler_text_add(m, blamed->file);
    brim_handler_text_add(m, "` calls its functions one by one");
  } else if (loaded_file)
    brim_handler_text_add(m, "in a constructor of the file or of a library that it needs, or the file is damaged");
  else
    m->length -= strlen("\n  ");
}

/* The instruction of brim or of a library that crashed. After a jump to an address without code, names the caller's
 * instruction instead, unless the message already names an instruction in a plugin. */
static void add_place(brim_handler_text *m, const culprit *blamed, const place *p)
{
  static brim_mapping file;
  if (code_of(p->at)) return;
  brim_mapping_find(p->at, &file);
  if (!file.path[0] && !blamed->code && p->caller) brim_mapping_find(p->caller, &file);
  if (!file.path[0]) return;
  brim_handler_text_add(m, "\n  at ");
  add_hex(m, (uintptr_t)file.offset);
  brim_handler_text_add(m, " of ");
  brim_handler_text_add(m, file.path);
}

/* Adds how to resume the run; a child of the process has no run. */
static void add_advice(brim_handler_text *m)
{
  const char *run = getpid() == watcher ? atomic_load(&current_advice) : NULL;
  if (!run) return;
  brim_handler_text_add(m, "\n  ");
  brim_handler_text_add(m, run);
}

static void finish(brim_handler_text *m)
{
  brim_handler_text_add(m, "\n");
  brim_handler_text_write(m);
}

/* Whether another process sent the signal, for example with kill(1), so that no instruction or raise() of this process
 * caused it. Then no plugin is to blame. */
static bool is_sent(const siginfo_t *info)
{
  return info->si_code <= 0 && info->si_pid != getpid();
}

static void report_sent(int signal, const siginfo_t *info)
{
  static brim_handler_text m;
  brim_handler_text_begin(&m);
  brim_handler_text_add(&m, "error: process ");
  brim_handler_text_add_number(&m, (uint64_t)info->si_pid, 10);
  brim_handler_text_add(&m, " sent this process a signal: ");
  brim_handler_text_add(&m, brim_crash_name(signal));
  add_advice(&m);
  finish(&m);
}

static void report_crash(int signal, const siginfo_t *info, const void *context)
{
  static brim_handler_text m;
  const place p = place_of(context);
  const origin from = origin_of(&p);
  const culprit blamed = culprit_of_crash(&from);
  add_culprit(&m, &blamed);
  brim_handler_text_add(&m, " has crashed: ");
  brim_handler_text_add(&m, brim_crash_name(signal));
  if (brim_crash_has_address(signal)) {
    brim_handler_text_add(&m, " at address ");
    add_hex(&m, (uintptr_t)info->si_addr);
  }
  add_culprit_place(&m, &blamed);
  add_place(&m, &blamed, &p);
  const char *file = atomic_load(&read_file);
  if (file) {
    brim_handler_text_add(&m, "\n  in the tables of ");
    brim_handler_text_add(&m, file);
    brim_handler_text_add(&m, ": does each table of parameters end in BRIM_PARAMS_END?");
  }
  add_advice(&m);
  finish(&m);
}

/* Whether the crash came from a mapped file whose pages could not be read, in which case no code is at fault. */
static bool is_of_file(int signal, const siginfo_t *info, brim_mapping *out)
{
  out->path[0] = '\0';
  if (signal == SIGBUS && info->si_code == BUS_ADRERR) brim_mapping_find((uintptr_t)info->si_addr, out);
  return out->path[0] != '\0';
}

static void report_file(const brim_mapping *file)
{
  static brim_handler_text m;
  struct stat now;
  brim_handler_text_begin(&m);
  brim_handler_text_add(&m, "error: '");
  brim_handler_text_add(&m, file->path);
  if (stat(file->path, &now) == 0 && (uint64_t)now.st_size <= file->offset) {
    brim_handler_text_add(&m, "' was truncated while it was in use: it has ");
    brim_handler_text_add_number(&m, (uint64_t)now.st_size, 10);
    brim_handler_text_add(&m, " bytes now, and byte ");
    brim_handler_text_add_number(&m, file->offset, 10);
    brim_handler_text_add(&m, " was to be read");
  } else {
    brim_handler_text_add(&m, "' became unreadable while it was in use, at byte ");
    brim_handler_text_add_number(&m, file->offset, 10);
  }
  add_advice(&m);
  finish(&m);
}

/* Writes the message once: one thread writes it, and the others wait, because they may be about to end the process. */
static void report_once(int signal, const siginfo_t *info, const void *context, const brim_mapping *file)
{
  const struct timespec ms = {0, 1000000};
  int unreported = 0;
  if (atomic_compare_exchange_strong(&report_state, &unreported, 1)) {
    if (file)
      report_file(file);
    else if (is_sent(info))
      report_sent(signal, info);
    else
      report_crash(signal, info, context);
    atomic_store(&report_state, 2);
  }
  for (int i = 0; i < WAIT_MS && atomic_load(&report_state) == 1; i++) nanosleep(&ms, NULL);
}

/* Restores the previous handler. When this handler returns, an instruction that crashed crashes again, and a signal
 * that another process sent is sent again. */
static void on_crash(int signal, siginfo_t *info, void *context)
{
  const int error = errno;
  brim_mapping file;
  brim_call_stack_on_signal();
  const place p = place_of(context);
  if (brim_guard_is_own() && !is_sent(info)) brim_guard_take_crash(signal, info, (const void *)origin_of(&p).at);
  const bool of_file = is_of_file(signal, info, &file);
  report_once(signal, info, context, of_file ? &file : NULL);
  if (of_file) _exit(brim_status_exit(BRIM_EIO));
  for (size_t i = 0; i < CRASHES; i++)
    if (crashes[i].signal == signal) sigaction(signal, &before[i], NULL);
  if (info->si_code <= 0) raise(signal);
  errno = error;
}

/* ---- watching ---- */

/* Runs when code other than brim's main function calls exit(), whose status does not show whether work is
 * unfinished. */
static void on_exit_called(void)
{
  static brim_handler_text m;
  if (brim_guard_is_own()) brim_guard_take_crash(0, NULL, NULL);
  if (getpid() != watcher || atomic_load(&exit_allowed)) return;
  const culprit blamed = culprit_of_exit();
  add_culprit(&m, &blamed);
  brim_handler_text_add(&m, " called exit(), which ends the program; plugins must not");
  add_culprit_place(&m, &blamed);
  add_advice(&m);
  finish(&m);
  _exit(brim_status_exit(loaded_file ? BRIM_ELOAD : BRIM_EPLUGIN));
}

/* exit() runs handlers in reverse order of registration, so the last one registered runs first. */
void brim_crash_watch_exit(void)
{
  if (watched) atexit(on_exit_called);
}

void brim_crash_watch(void)
{
  static char stack[STACK_BYTES];
  const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  if (watched) return;
  watched = true;
  watcher = getpid();
  look_up((const void *)(uintptr_t)&brim_crash_watch, &brims);
  brim_call_stack_prepare();
  at_quick_exit(on_exit_called);
  sigaltstack(&own, NULL);
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < CRASHES; i++) sigaction(crashes[i].signal, &action, &before[i]);
  brim_crash_watch_exit();
}

void brim_crash_prepare_thread(brim_crash_stack *out)
{
  sigset_t set;
  *out = (brim_crash_stack){0};
  if (!watched) return;
  sigemptyset(&set);
  for (size_t i = 0; i < CRASHES; i++) sigaddset(&set, crashes[i].signal);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  void *bytes = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  const stack_t own = {.ss_sp = bytes, .ss_size = STACK_BYTES};
  if (bytes == MAP_FAILED) return;
  sigaltstack(&own, &out->before);
  out->bytes = bytes;
}

void brim_crash_release_thread(const brim_crash_stack *stack)
{
  if (!stack->bytes) return;
  sigaltstack(&stack->before, NULL);
  munmap(stack->bytes, STACK_BYTES);
}

void brim_crash_allow_exit(void)
{
  atomic_store(&exit_allowed, true);
}

void brim_crash_loading(const char *file)
{
  loaded_file = file;
}

void brim_crash_reading(const char *file)
{
  atomic_store(&read_file, file);
}

/* There are two buffers, because the handler may be reading one while this writes the other. */
void brim_crash_advice(const char *text)
{
  const char *now = atomic_load(&current_advice);
  char *other = advice[now == advice[0]];
  if (text) snprintf(other, sizeof advice[0], "%s", text);
  atomic_store(&current_advice, text ? other : NULL);
}

static void on_alarm(int signal)
{
  static const char text[] =
      "error: a plugin that crashed or hangs keeps the process from exiting, "
      "perhaps by holding a lock: data that was still to be written, such as a run's checkpoint, is lost\n";
  (void)signal;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(brim_status_exit(BRIM_EPLUGIN));
}

void brim_crash_end_in(unsigned seconds)
{
  struct sigaction action = {.sa_handler = on_alarm};
  sigset_t set;
  if (!watched) return;
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, NULL);
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  alarm(seconds);
}
