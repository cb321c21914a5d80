/* A name map converts the tensor names of a known file layout to those of brim's models. Maps are YAML files in
 * configs/weights:
 *
 *     about: GPT-2 as Hugging Face's GPT2LMHeadModel
 *     layout: hf                                    # its name for `brim export --format`
 *     recognise: ["**h.0.attn.c_attn.weight"]       # a file with tensors for all these patterns has this layout
 *     rules:                                        # the first rule whose `from` matches a name applies
 *       - {from: "h.*.*.c_*.weight", to: "transformer.h.*.*.c_*.weight", transpose: true}
 *       - {from: "**.attn.masked_bias", drop: true}
 *       - {from: lm_head.weight, same_as: transformer.wte.weight}
 *
 * In a pattern `*` matches one or more characters other than dots, and `**` any text or none. `to` has the same
 * wildcards in the same order, so a map also works in reverse, for exporting files: the first rule whose `to` matches a
 * model's name applies. A name that no rule matches does not change.
 *
 * `gguf: [llama]` instead of `recognise`: the map is for GGUF files with these values of general.architecture.
 *
 * `transpose`: the file stores the transposed matrix. `optional`: a model need not have the tensor. `drop`: the file
 * has the tensor, but the model does not use it. `same_as`: the file has the tensor twice, the model once; both must be
 * equal. `heads`: in the file the D rows of each head are in the order 0, D/2, 1, D/2 + 1 ..., for a rotary embedding
 * that rotates neighbours; the value is the GGUF key of the number of heads, without the architecture. `add`: the
 * model's values are the file's plus this number. */
#ifndef BRIM_STORE_WEIGHTS_MAP_H
#define BRIM_STORE_WEIGHTS_MAP_H
#include <stdbool.h>

#include "base/arena.h"
#include "param/yaml.h"

#define BRIM_WEIGHTS_RULES_MAX 1000
#define BRIM_WEIGHTS_WILDCARDS_MAX 6     /* in a pattern */
#define BRIM_WEIGHTS_NAME_BYTES_MAX 1000 /* longer names match no pattern */

typedef struct brim_weights_rule {
  const char *from;
  const char *to, *same_as; /* exactly one of the two, unless the rule drops the tensor */
  bool drop, transpose, optional;
  const char *heads; /* NULL: rows are in the model's order */
  double add;
} brim_weights_rule;

typedef struct brim_weights_map {
  const char *name, *about;
  const char *layout; /* may be NULL */
  const char **recognise, **gguf;
  const brim_weights_rule *rule;
  size_t recognise_count, gguf_count, rule_count;
  const brim_yaml *config; /* the file's metadata: a map of scalars and lists of scalars; may be NULL */
} brim_weights_map;

/* [any thread] Parses a map, allocated from `arena`; `name` is the map's. ECONFIG with every mistake and its
 * position. */
brim_status brim_weights_map_parse(brim_arena *arena, const char *text, size_t bytes, const char *file,
                                   const char *name, brim_weights_map *out);
/* The folders that are searched for configurations; maps are in their subfolder "weights". */
typedef struct brim_weights_search {
  const char *const *folder;
  size_t count;
} brim_weights_search;
/* [init] Reads the map with a name, or a file whose path ends in ".yaml". ECONFIG with the available names. */
brim_status brim_weights_map_read(brim_arena *arena, const brim_weights_search *search, const char *name,
                                  brim_weights_map *out);
/* [init] Reads all maps that have a name, sorted. ECONFIG. */
brim_status brim_weights_maps_read(brim_arena *arena, const brim_weights_search *search, brim_weights_map **out,
                                   size_t *count);

/* The mapping of one name. */
typedef struct brim_weights_way {
  const char *name;    /* name on the other side; NULL: none, see the next two fields */
  const char *same_as; /* the tensor of the model that must have the same values; NULL: the tensor is dropped */
  bool transpose, optional;
  const char *heads; /* see the rule */
  double add;
} brim_weights_way;
/* [any thread] Map a file's name to a model's, and back. `map` NULL: all names stay unchanged. The resulting name lives
 * in `arena` or is the given one. */
brim_weights_way brim_weights_map_to_model(const brim_weights_map *map, brim_arena *arena, const char *name);
brim_weights_way brim_weights_map_to_file(const brim_weights_map *map, brim_arena *arena, const char *name);
/* [any thread] Whether the names match all patterns by which a file of this layout is recognised. */
bool brim_weights_map_recognises(const brim_weights_map *map, const char *const *name, size_t count);
/* [any thread] Whether the map is for GGUF files of this architecture. */
bool brim_weights_map_is_for(const brim_weights_map *map, const char *architecture);
#endif
