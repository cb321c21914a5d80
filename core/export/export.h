/* A run's parameters as a file that other programs read. */
#ifndef BRIM_EXPORT_EXPORT_H
#define BRIM_EXPORT_EXPORT_H
#include "store/weights_files.h"
#include "store/weights_map.h"

/* Parameters as brim's models name and keep them. */
typedef struct brim_parameters {
  const brim_safetensor *tensor;
  size_t count;
  brim_weights_files *files; /* where the values are mapped from; NULL: they are the caller's */
} brim_parameters;

/* [init] Those of a checkpoint, all bytes of which were compared with their hash; `checkpoint`: see
 * brim_checkpoint_choose. The list lives in `arena`. ELOAD. */
brim_status brim_parameters_read(brim_arena *arena, const char *checkpoint, brim_parameters *out);
void brim_parameters_close(brim_parameters *parameters);

/* The map by which these parameters are written in a format: "brim" (*map is NULL: as they are), what maps call their
 * layout ("timm", "hf"), the name of a map, or the path of a file that ends in ".yaml". ECONFIG if there is no such
 * format, none for these parameters, or if the map does not lead back to their names. */
brim_status brim_export_choose(brim_arena *arena, const brim_weights_search *search, const char *format,
                               const brim_parameters *parameters, const brim_weights_map **map);
/* [init] The first of all maps that leads from these names to a layout and back; NULL: none does. ECONFIG. */
brim_status brim_export_find(brim_arena *arena, const brim_weights_search *search, const brim_parameters *parameters,
                             const brim_weights_map **map);
/* What the run keeps of its data (data/keep.h) is in the file's metadata, as text: names of classes, means. */
#define BRIM_EXPORT_DATA_KEY "brim.data"
/* [init] Writes them to `path`, aside and renamed. Real numbers become `dtype`; 0: they stay. `map` NULL: names stay.
 * `data`: see above; NULL: nothing.
 * The host's memory that it takes is that of the largest tensor. EIO; EINVAL if a number is not finite in that type. */
brim_status brim_export_write(const brim_parameters *parameters, const brim_weights_map *map, uint32_t dtype,
                              const char *data, const char *path);
#endif
