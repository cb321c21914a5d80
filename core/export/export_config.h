/* Writes config.json, in which Hugging Face describes a network. */
#ifndef BRIM_EXPORT_EXPORT_CONFIG_H
#define BRIM_EXPORT_EXPORT_CONFIG_H
#include "export/export.h"
#include "param/yaml.h"

/* [init] Writes the map's `config` as JSON. In its values, "${model.heads}" is replaced by a value of the run's
 * configuration, and "${shape:NAME:1}" by a dimension of a parameter. ECONFIG if the run has no such value; EIO. */
brim_status brim_export_write_config(const brim_weights_map *map, const brim_yaml *run,
                                     const brim_parameters *parameters, const char *path);
#endif
