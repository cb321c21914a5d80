/* Interpolation: values that refer to other values, replaced after everything is merged.
 *
 *     ${a.b}  ${a.0}  ${a[0]}     the value of a key; may be a map or a list if it is the whole value
 *     ${.x}  ${..x}               a key beside this one; a key beside the map or list that contains this one
 *     ${oc.env:VAR}               an environment variable, always a string; ${oc.env:VAR,default} if it is not set
 *     runs/${model.id}-${seed}    inside text; ${a.${b}} inside each other
 *     \${                         a literal "${"; \\${a} is a backslash and a value
 *
 * brim parses the result by the declared type of its key, whether or not it is quoted; in a map without declared keys,
 * text remains text. */
#ifndef BRIM_CONFIG_INTERPOLATE_H
#define BRIM_CONFIG_INTERPOLATE_H
#include "config/compose.h"
#include "config/schema.h"

#define BRIM_INTERPOLATION_DEPTH_MAX 64 /* maximum length of a chain of references, and depth of nesting */
#define BRIM_INTERPOLATION_BYTES_MAX ((size_t)BRIM_YAML_BYTES_MAX) /* of all values together */

/* Replaces every interpolation in c->root, which must include the schema's defaults. A value that could not be replaced
 * becomes BRIM_YAML_FAILED, with a problem added. */
void brim_interpolate(brim_composition *c, const brim_schema *schema);
/* Replaces the interpolations in the name of an option; ${group} is the option of another group. Returns NULL, with a
 * problem added, on failure. */
const char *brim_interpolate_option(brim_composition *c, const char *text, brim_yaml_origin origin);
/* Replaces the interpolations in a value that is read before the schema exists; they may refer only to environment
 * variables. False on failure. */
bool brim_interpolate_early(brim_composition *c, const char *path, brim_yaml *node);
/* Escapes the text with backslashes, so that it is read back unchanged. */
const char *brim_interpolation_escape(brim_arena *arena, const char *text);
/* The same for all scalars of a tree. */
void brim_interpolation_escape_all(brim_arena *arena, brim_yaml *node);
#endif
