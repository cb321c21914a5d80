/* Reads JSON files of other programs into the trees of yaml.h, with the line and column of every node. The YAML parser
 * reads most of JSON, but not surrogate pairs such as \ud83d\ude00, and it limits the number of nodes. */
#ifndef BRIM_PARAM_JSON_H
#define BRIM_PARAM_JSON_H
#include "param/yaml.h"

/* Texts are quoted scalars; numbers, true, false, null, NaN and Infinity keep the text of the file. `arena` owns the
 * tree. ECONFIG with the position for text that is not JSON, a key that occurs twice, more than BRIM_YAML_BYTES_MAX
 * bytes, or more than BRIM_YAML_DEPTH_MAX levels; ELOAD if the file cannot be read. */
brim_status brim_json_parse_file(brim_arena *arena, const char *path, brim_yaml **out);
brim_status brim_json_parse(brim_arena *arena, const char *text, size_t bytes, const char *file, brim_yaml **out);
#endif
