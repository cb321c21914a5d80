/* JSON files of other programs as the trees of yaml.h, every node with its line and column: YAML reads most of JSON,
 * but not the two halves of a character that JSON writes as \ud83d\ude00, and limits the number of nodes. */
#ifndef BRIM_PARAM_JSON_H
#define BRIM_PARAM_JSON_H
#include "param/yaml.h"

/* Texts are quoted scalars; numbers, true, false, null, NaN and Infinity are the scalars that the file has. Everything
 * lives in `arena`. ECONFIG with the position for text that is not JSON, a key that occurs twice, more than
 * BRIM_YAML_BYTES_MAX bytes, or more than BRIM_YAML_DEPTH_MAX levels; ELOAD if the file cannot be read. */
brim_status brim_json_parse_file(brim_arena *arena, const char *path, brim_yaml **out);
brim_status brim_json_parse(brim_arena *arena, const char *text, size_t bytes, const char *file, brim_yaml **out);
#endif
