/* Distinct strings, numbered in the order in which they came: classes, and the ids of groups. */
#ifndef CSV_NAMES_H
#define CSV_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct csv_names {
  char **item; /* owned */
  int32_t count, room;
  int32_t *slot; /* slots of a hash table with open addressing: a number + 1, or 0 */
  size_t slots;  /* a power of two */
} csv_names;

#define CSV_NAMES_MAX ((int32_t)1 << 28)

/* Ready when zeroed. */
void csv_names_free(csv_names *names);
int32_t csv_names_find(const csv_names *names, const char *name); /* -1 if it is missing */
/* [init] Returns the number of `name`, and adds it if it is new. ENOMEM_HOST; ELOAD if there are too many. */
brim_status csv_names_add(csv_names *names, const char *name, int32_t *out);
/* [init] Sorts numerically if all names are whole numbers, else by bytes. Sets `to[old number]` to the new number; it
 * has room for `count`. ENOMEM_HOST. */
brim_status csv_names_sort(csv_names *names, int32_t *to);
#endif
