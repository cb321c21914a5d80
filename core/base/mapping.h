/* Finds the file that an address is mapped to, in /proc/self/maps. */
#ifndef BRIM_BASE_MAPPING_H
#define BRIM_BASE_MAPPING_H
#include <stdint.h>

typedef struct brim_mapping {
  uint64_t offset; /* offset of the address within the file */
  char path[4096]; /* empty: not mapped to a file */
} brim_mapping;

/* [any thread] Async-signal-safe: calls only open, read and close. */
void brim_mapping_find(uintptr_t address, brim_mapping *out);
#endif
