/* Checks a shared object before the dynamic linker loads it, for clearer error messages. */
#ifndef BRIM_PLUGIN_ELF_H
#define BRIM_PLUGIN_ELF_H
#include "brim/status.h"

/* ELOAD unless `file` is a whole ELF shared object for this machine. The error text starts after the file's name:
 * "is empty". Reads the headers only; the dynamic linker may still refuse a file that passes. */
brim_status brim_elf_check(const char *file);
#endif
