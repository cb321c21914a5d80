/* The location of brim's own files. An installation and a build folder have the same layout (bin, lib,
 * lib/brim/plugins, share/brim/configs and so on); brim finds it from the location of libbrim.so or of the executable,
 * so that users can move it. */
#ifndef BRIM_BASE_INSTALL_H
#define BRIM_BASE_INSTALL_H
#include <stdbool.h>
#include <stddef.h>

#define BRIM_INSTALL_PLUGINS "lib/brim/plugins"
#define BRIM_INSTALL_CONFIGS "share/brim/configs"
#define BRIM_INSTALL_TEMPLATES "share/brim/templates"

/* Writes the absolute path of the installation's folder `sub` ("share/brim/configs") to `out`. Returns false and writes
 * "" if the folder does not exist or its path does not fit. */
bool brim_install_dir(char *out, size_t room, const char *sub);
#endif
