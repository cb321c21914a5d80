/* Lists of whole numbers in files of MATLAB. */
#ifndef FLOWERS102_MAT_LIST_H
#define FLOWERS102_MAT_LIST_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct mat_list {
  int32_t *item; /* owned */
  size_t count;
} mat_list;

/* [init] Reads variable `name` from a file of MATLAB 5 to 7.2: real whole numbers from 1 to `most`, in one row or
 * column. Returns ELOAD with the error in the file, or ENOMEM_HOST; *out is then empty. */
brim_status mat_list_read(const char *path, const char *name, int32_t most, mat_list *out);
void mat_list_free(mat_list *list); /* no-op if empty */
#endif
