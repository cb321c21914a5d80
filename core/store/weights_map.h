/* Name maps: what the tensors of a known layout of files are called in brim's models. YAML files in configs/weights:
 *
 *     about: GPT-2 as Hugging Face's GPT2LMHeadModel
 *     layout: hf                                    # what `brim export --format` calls it
 *     recognise: ["**h.0.attn.c_attn.weight"]       # a file with tensors of all of these patterns is of this layout
 *     rules:                                        # of a name the first rule counts whose `from` it matches
 *       - {from: "h.*.*.c_*.weight", to: "transformer.h.*.*.c_*.weight", transpose: true}
 *       - {from: "**.attn.masked_bias", drop: true}
 *       - {from: lm_head.weight, same_as: transformer.wte.weight}
 *
 * In a pattern `*` stands for one or more characters other than dots, and `**` for any text or none. `to` has the same
 * of them in the same order, so a map can be gone through backwards, which is how files are exported: of a model's name
 * the first rule counts whose `to` it matches. A name that no rule matches stays as it is.
 *
 * `transpose`: a matrix lies the other way round in the file. `optional`: a model need not have it. `drop`: the file
 * has it, and the model has no use for it. `same_as`: the file has it twice, the model once; both must be equal. */
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
  const char *to, *same_as; /* one of them, unless it drops */
  bool drop, transpose, optional;
} brim_weights_rule;

typedef struct brim_weights_map {
  const char *name, *about;
  const char *layout; /* NULL: none */
  const char **recognise;
  const brim_weights_rule *rule;
  size_t recognise_count, rule_count;
  const brim_yaml *config; /* a map of scalars and lists of them; NULL: none */
} brim_weights_map;

/* [any thread] Everything lives in `arena`. ECONFIG with every mistake and its position. `name` of the map. */
brim_status brim_weights_map_parse(brim_arena *arena, const char *text, size_t bytes, const char *file,
                                   const char *name, brim_weights_map *out);
/* The folders that configurations are looked for in; maps are in their folder "weights". */
typedef struct brim_weights_search {
  const char *const *folder;
  size_t count;
} brim_weights_search;
/* [init] The map of a name, or of a file whose path ends in ".yaml". ECONFIG with the names that there are. */
brim_status brim_weights_map_read(brim_arena *arena, const brim_weights_search *search, const char *name,
                                  brim_weights_map *out);
/* [init] All maps that can be named, sorted. ECONFIG. */
brim_status brim_weights_maps_read(brim_arena *arena, const brim_weights_search *search, brim_weights_map **out,
                                   size_t *count);

/* What becomes of a name. */
typedef struct brim_weights_way {
  const char *name;    /* on the other side; NULL: there is nothing, see the next two */
  const char *same_as; /* the tensor of the model whose values these must be; NULL: it is dropped */
  bool transpose, optional;
} brim_weights_way;
/* [any thread] From a file's name to a model's, and back. `map` NULL: all names stay as they are. A name lives in
 * `arena` or is the one that was given. */
brim_weights_way brim_weights_map_to_model(const brim_weights_map *map, brim_arena *arena, const char *name);
brim_weights_way brim_weights_map_to_file(const brim_weights_map *map, brim_arena *arena, const char *name);
/* [any thread] Are there names for all that a file of this layout is recognised by? */
bool brim_weights_map_recognises(const brim_weights_map *map, const char *const *name, size_t count);
#endif
