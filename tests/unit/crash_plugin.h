/* The plugin of test_crash.c, whose code is in a shared object of its own. */
#include <stddef.h>

typedef void crash_work(void *context);

typedef struct crash_plugin {
  int (*call)(crash_work *f, void *context, int depth); /* calls f through `depth` nested calls of its own */
  int (*clear)(void *(*library)(void *, int, size_t), char *at);
  int (*write)(volatile int *at);
} crash_plugin;
extern const crash_plugin the_crash_plugin;
