/* Language models as Hugging Face stores them: the network that a config.json describes, as values of model=decoder.
 * The files in configs/family, one for each model_type, define the meaning of each key (configs/family/common.yaml
 * describes their format). */
#ifndef BRIM_CONFIG_FAMILY_H
#define BRIM_CONFIG_FAMILY_H
#include "config/compose.h"

/* A key in an option's file. Its value names the key that has the folder of the config.json. */
#define BRIM_FAMILY_KEY "read_family"

/* If `content`, an option of the group `group`, has the key BRIM_FAMILY_KEY, removes it and adds the network's values,
 * with their places in config.json as origins. False, with problems added, if they cannot be read. */
bool brim_family_read(brim_composition *c, const char *group, brim_yaml *content);

/* Adds to a config.json the values that its family has for missing keys: `model` of the family's file, in the subfolder
 * "family" of one of the folders. Adds nothing for a type without a file. ECONFIG if a file cannot be read. */
brim_status brim_family_complete(brim_arena *arena, const char *const *folder, size_t folders, brim_yaml *config);
#endif
