/* Interpolation: values that refer to other values, replaced after everything was merged.
 *
 *     ${a.b}  ${a.0}  ${a[0]}     the value of a key; the whole of a value that is nothing else, maps and lists too
 *     ${.x}  ${..x}               of a key beside this one; of one beside the map or list that holds it
 *     ${oc.env:VAR}               an environment variable, always a string; ${oc.env:VAR,default} if it is not set
 *     runs/${model.id}-${seed}    inside text; ${a.${b}} inside each other
 *     \${                         a literal "${"; \\${a} is a backslash and a value
 *
 * What comes of it is parsed by the declared type of its key, quoted or not; in a free map text stays text. */
#ifndef BRIM_CONFIG_INTERPOLATE_H
#define BRIM_CONFIG_INTERPOLATE_H
#include "config/compose.h"
#include "config/schema.h"

#define BRIM_INTERPOLATION_DEPTH_MAX 64                            /* references that lead to each other, or nest */
#define BRIM_INTERPOLATION_BYTES_MAX ((size_t)BRIM_YAML_BYTES_MAX) /* of all values together */

/* Replaces every interpolation in c->root; defaults of the schema must be in it. A value that could not be replaced is
 * BRIM_YAML_FAILED, and a problem was added. */
void brim_interpolate(brim_composition *c, const brim_schema *schema);
/* Replaces those in the name of an option, where ${group} is the option of another group; NULL if that fails, and then
 * a problem was added. */
const char *brim_interpolate_option(brim_composition *c, const char *text, brim_yaml_origin origin);
/* Replaces those in a value that is read before there is a schema: the environment only. False if it fails. */
bool brim_interpolate_early(brim_composition *c, const char *path, brim_yaml *node);
/* Doubles and adds backslashes so that the text stands for itself. */
const char *brim_interpolation_escape(brim_arena *arena, const char *text);
#endif
