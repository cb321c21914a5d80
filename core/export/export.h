/* Writes a run's parameters as a file that other programs read. */
#ifndef BRIM_EXPORT_EXPORT_H
#define BRIM_EXPORT_EXPORT_H
#include "store/weights_files.h"
#include "store/weights_map.h"

/* Parameters with the names and layouts of brim's models. */
typedef struct brim_parameters {
  const brim_safetensor *tensor;
  size_t count;
  brim_weights_files *files; /* the files from which the values are mapped; NULL: the caller owns the values */
} brim_parameters;

/* [init] Reads the parameters of a checkpoint and verifies the hash of all its bytes; `checkpoint`: see
 * brim_checkpoint_choose. `arena` owns the list. ELOAD. */
brim_status brim_parameters_read(brim_arena *arena, const char *checkpoint, brim_parameters *out);
void brim_parameters_close(brim_parameters *parameters);

/* Finds the map for writing these parameters in a format: "brim" (*map becomes NULL: unchanged names), the layout of a
 * map ("timm", "hf"), the name of a map, or the path of a file that ends in ".yaml". ECONFIG if the format is unknown,
 * does not suit these parameters, or its map does not restore their names. */
brim_status brim_export_choose(brim_arena *arena, const brim_weights_search *search, const char *format,
                               const brim_parameters *parameters, const brim_weights_map **map);
/* [init] Finds the first map that converts these names to a layout and back; NULL if there is none. ECONFIG. */
brim_status brim_export_find(brim_arena *arena, const brim_weights_search *search, const brim_parameters *parameters,
                             const brim_weights_map **map);
/* The key in the file's metadata under which the run's record of its data (data/keep.h) is stored as text: class names,
 * means. */
#define BRIM_EXPORT_DATA_KEY "brim.data"
/* [init] Writes the parameters to a temporary file and renames it to `path`. Real numbers become `dtype`; 0: unchanged.
 * `map` NULL: names are unchanged. `data`: see above; NULL: none. Needs host memory for the largest tensor. EIO; EINVAL
 * if a number is not finite in that type. */
brim_status brim_export_write(const brim_parameters *parameters, const brim_weights_map *map, uint32_t dtype,
                              const char *data, const char *path);
#endif
