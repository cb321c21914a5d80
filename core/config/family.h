/* Language models as Hugging Face stores them: the network that a config.json describes, as values of model=decoder.
 * The files in configs/family, one for each model_type, say which key means what (configs/family/common.yaml describes
 * them). */
#ifndef BRIM_CONFIG_FAMILY_H
#define BRIM_CONFIG_FAMILY_H
#include "config/compose.h"

/* The key of an option's file that names the key with the folder of the config.json. */
#define BRIM_FAMILY_KEY "read_family"

/* If `content`, an option of the group `group`, has the key BRIM_FAMILY_KEY, removes it and adds the network's values,
 * with their places in config.json as origins. False, with problems added, if they cannot be read. */
bool brim_family_read(brim_composition *c, const char *group, brim_yaml *content);
#endif
