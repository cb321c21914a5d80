/* A file in memory with an input's bytes, for readers that take a name. */
#ifndef TESTS_FUZZ_MEMORY_FILE_H
#define TESTS_FUZZ_MEMORY_FILE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns a descriptor, which the caller closes, and writes the file's name to `name`. The name is valid until then. */
static inline int memory_file(const uint8_t *data, size_t size, char name[32])
{
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
    fprintf(stderr, "fuzz: no file in memory\n");
    exit(2);
  }
  snprintf(name, 32, "/proc/self/fd/%d", fd);
  return fd;
}
#endif
