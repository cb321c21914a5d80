/* The names of the kinds of plugins, and the rule for valid ids. */
#ifndef BRIM_PLUGIN_KIND_H
#define BRIM_PLUGIN_KIND_H
#include "brim/plugin.h"

#define BRIM_PLUGIN_ID_MAX 64 /* bytes */

const char *brim_kind_name(uint32_t kind);    /* "model"; NULL if unknown */
uint32_t brim_kind_by_name(const char *name); /* enum brim_kind; 0 if unknown */
bool brim_is_plugin_id(const char *id);       /* 1 to BRIM_PLUGIN_ID_MAX characters from a-z, 0-9 and _ */
#endif
