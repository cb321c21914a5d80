/* Distinct strings, numbered in the order in which they were added: classes, and the ids of groups. */
#ifndef CSV_NAMES_H
#define CSV_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct csv_names {
  char **item; /* owned */
  int32_t count, room;
  int32_t *slot; /* a hash table with open addressing; a slot is a name's number + 1, or 0 */
  size_t slots;  /* a power of two */
} csv_names;

#define CSV_NAMES_MAX ((int32_t)1 << 28)

/* A zeroed csv_names is ready for use. */
void csv_names_free(csv_names *names);
int32_t csv_names_find(const csv_names *names, const char *name); /* -1 if it is missing */
/* [init] Returns the number of `name`; adds the name if it is new. Returns ELOAD if there are too many names, or
 * ENOMEM_HOST. */
brim_status csv_names_add(csv_names *names, const char *name, int32_t *out);
/* [init] Sorts numerically if all names are whole numbers, otherwise by bytes. Writes the new numbers to to[old
 * number]; `to` has room for `count`. Returns ENOMEM_HOST if there is no memory. */
brim_status csv_names_sort(csv_names *names, int32_t *to);
#endif
