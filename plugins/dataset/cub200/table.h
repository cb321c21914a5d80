/* The text files of CUB-200-2011. Each line describes a picture or a class, and begins with its number, from 1 without
 * gaps. */
#ifndef CUB200_TABLE_H
#define CUB200_TABLE_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define CUB200_NUMBERS_MAX 4

typedef struct cub200_row {
  const char *text;                  /* the text after the line's number, or NULL */
  double number[CUB200_NUMBERS_MAX]; /* numbers, if the row has no text */
} cub200_row;

typedef struct cub200_table {
  char *bytes; /* the bytes of the file, owned; texts are parts of them */
  cub200_row *row;
  size_t count; /* the number of rows; row[i] has the number i + 1 */
} cub200_table;

/* [init] numbers: how many numbers follow the line's own number, 1 to CUB200_NUMBERS_MAX; 0 if a text follows. Returns
 * ELOAD, naming the bad line, or ENOMEM_HOST; *out is then empty. */
brim_status cub200_table_read(const char *path, int numbers, cub200_table *out);
void cub200_table_free(cub200_table *table); /* no-op if empty */
#endif
