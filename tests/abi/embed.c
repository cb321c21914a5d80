/* Loads libbrim.so with private symbols, as Python's ctypes does, and lists the plugins. The plugins must find brim's
 * functions all the same. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "libbrim.so could not be loaded: %s\n", argc == 2 ? dlerror() : "name it");
    return 1;
  }
  void *symbol = dlsym(library, "brim_main");
  int (*brim_main)(int, char **) = NULL;
  memcpy(&brim_main, &symbol, sizeof brim_main);
  char name[] = "brim", command[] = "plugins";
  char *words[] = {name, command, NULL};
  return brim_main ? brim_main(2, words) : 1;
}
