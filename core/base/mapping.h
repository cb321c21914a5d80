/* Which file an address is mapped to, by /proc/self/maps. */
#ifndef BRIM_BASE_MAPPING_H
#define BRIM_BASE_MAPPING_H
#include <stdint.h>

typedef struct brim_mapping {
  uint64_t offset; /* of the address, in the file */
  char path[4096]; /* empty: it is mapped to none */
} brim_mapping;

/* [any thread] For handlers of signals too: calls nothing but open, read and close. */
void brim_mapping_find(uintptr_t address, brim_mapping *out);
#endif
