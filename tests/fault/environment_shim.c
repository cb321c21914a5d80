/* Preloaded into brim, this ends a process that calls getenv() on the watching thread while MPI starts: MPI calls
 * setenv() meanwhile, which may free the text that getenv() reads, and the resulting crash is rare (one start in some
 * hundreds). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHIM __attribute__((visibility("default")))

SHIM char *getenv(const char *name)
{
  static const char message[] = "getenv() on the thread brim-joining\n";
  char thread[16] = "";
  char *(*next)(const char *);
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  if (strcmp(thread, "brim-joining") == 0) {
    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    _exit(99);
  }
  *(void **)&next = dlsym(RTLD_NEXT, "getenv");
  return next(name);
}
