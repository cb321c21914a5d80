/* Small JSON files in a run's folder, written atomically and read back. */
#ifndef BRIM_STORE_RECORD_H
#define BRIM_STORE_RECORD_H
#include <jansson.h>

#include "base/text.h"

/* Prints a file's text. EINTERNAL if the values cannot be printed. */
brim_status brim_record_print(const char *name, const json_t *record, brim_text *out);
/* Writes <run>/<name>. EIO with the reason. */
brim_status brim_record_write(const char *run, const char *name, const json_t *record);
/* Reads it back. *out belongs to the caller; NULL if there is no such file. ELOAD if it cannot be read. */
brim_status brim_record_read(const char *run, const char *name, json_t **out);
/* Like json_load_file(), but for regular files only, so that it does not block on a pipe. `problem` may be NULL. */
json_t *brim_json_load(const char *path, size_t flags, json_error_t *problem);
#endif
