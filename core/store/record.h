/* Small JSON files in a run's folder, which are written atomically and read back; and helpers for JSON values. */
#ifndef BRIM_STORE_RECORD_H
#define BRIM_STORE_RECORD_H
#include <jansson.h>

#include "base/text.h"

/* Prints the text of a file. EINTERNAL if the values cannot be printed. */
brim_status brim_record_print(const char *name, const json_t *record, brim_text *out);
/* Writes <run>/<name>. EIO with the reason. */
brim_status brim_record_write(const char *run, const char *name, const json_t *record);
/* Reads <run>/<name>. The caller owns *out, which is NULL if there is no such file. ELOAD if it cannot be read. */
brim_status brim_record_read(const char *run, const char *name, json_t **out);
/* Does the work of json_load_file(), but only for regular files, so that it does not block on a pipe. `problem` may be
 * NULL. */
json_t *brim_json_load(const char *path, size_t flags, json_error_t *problem);

/* Returns a number as JSON; null for NaN, which JSON does not have. */
json_t *brim_json_figure(double value);
/* Returns a number of an object; NAN if the number or the object is missing. */
double brim_json_number(const json_t *object, const char *key);
/* Returns a text of an object; "" if the text or the object is missing. */
const char *brim_json_string(const json_t *object, const char *key);
#endif
