/* The kinds of plugins by name. */
#ifndef BRIM_PLUGIN_KIND_H
#define BRIM_PLUGIN_KIND_H
#include "brim/plugin.h"

const char *brim_kind_name(uint32_t kind);    /* "model"; NULL if unknown */
uint32_t brim_kind_by_name(const char *name); /* enum brim_kind; 0 if unknown */
#endif
