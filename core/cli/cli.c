/* Code that commands share: the configuration from their words, results, messages, and output files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/install.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "store/record.h"

#define TEXT_BYTES_MAX ((size_t)64 << 20)

void brim_cli_search_path(const brim_cli *cli, brim_cli_search *out)
{
  out->count = 0;
  for (size_t i = 0; i < cli->config_paths.count; i++) out->folder[out->count++] = cli->config_paths.path[i];
  for (size_t i = 0; brim_registry_configs(cli->registry, i); i++)
    out->folder[out->count++] = brim_registry_configs(cli->registry, i);
  if (brim_install_dir(out->installed, sizeof out->installed, BRIM_INSTALL_CONFIGS))
    out->folder[out->count++] = out->installed;
}

/* Returns the file of a plugin according to plugins.json, in the folder of a run's configuration; NULL if it is not
 * listed. */
static const char *find_plugin(brim_arena *arena, const char *config, const char *group, const char *id)
{
  const char *slash = strrchr(config, '/'), *file = NULL;
  const int length = slash ? (int)(slash - config) : 1;
  const char *path = brim_arena_printf(arena, "%.*s/plugins.json", length, slash ? config : "."), *key;
  json_t *all = brim_json_load(path, 0, NULL); /* errors are ignored, because the file is read only for a hint */
  json_t *one;
  json_object_foreach(all, key, one)
  {
    const bool is_it = brim_starts_with(key, group) && strchr(".", key[strlen(group)]); /* also matches "policy.mine" */
    const char *was = is_it ? json_string_value(json_object_get(one, "id")) : NULL;
    if (was && strcmp(was, id) == 0) file = json_string_value(json_object_get(one, "file"));
  }
  if (file) file = brim_arena_string(arena, file);
  json_decref(all);
  return file;
}

brim_status brim_cli_config(const brim_cli *cli, const char *file, const char *const *override, const int *number,
                            size_t count, brim_config **out)
{
  brim_cli_search search;
  brim_cli_search_path(cli, &search);
  const brim_config_request request = {.search = search.folder,
                                       .search_count = search.count,
                                       .name = cli->config_name,
                                       .file = file,
                                       .overrides = override,
                                       .allow_missing = cli->allow_missing,
                                       .override_count = count,
                                       .first_argument = 1,
                                       .argument = number,
                                       .plugin_file = find_plugin};
  return brim_config_load(&request, cli->registry, out);
}

void brim_cli_print(const char *text)
{
  brim_text shown = {0};
  brim_text_add_shown(&shown, text, "\n\t");
  fputs(brim_text_str(&shown), stdout);
  brim_text_release(&shown);
}

brim_status brim_cli_print_json(json_t *root)
{
  const size_t escaped = isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0; /* escaped, without control characters */
  char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | escaped) : NULL;
  json_decref(root);
  if (!text) return brim_fail(BRIM_EINVAL, "cannot write the results as JSON: is a name not UTF-8?");
  puts(text);
  free(text);
  return BRIM_OK;
}

void brim_cli_hush(const brim_cli *cli, bool quiet)
{
  const enum brim_level asked = cli->quiet ? BRIM_LOG_WARN : cli->verbose ? BRIM_LOG_DEBUG : BRIM_LOG_INFO;
  brim_log_set_level(quiet ? BRIM_LOG_ERROR : asked);
}

int brim_cli_fail(brim_status status)
{
  if (!brim_error_text()[0])
    brim_fail(status,
              "a function failed without an error text: %s\nif it is a plugin's, it must use brim_fail(status, ...)",
              brim_status_text(status));
  if (status == BRIM_EINTERRUPTED)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  else
    brim_log_error();
  return brim_status_exit(status);
}

brim_status brim_cli_check_absent(const char *path, bool force)
{
  struct stat info;
  if (force || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return BRIM_OK; /* a pipe, /dev/null */
  return brim_fail(BRIM_ECONFIG, "'%s' exists already\nname another file with -o FILE, or replace it with --force",
                   path);
}

brim_status brim_cli_read_text(const char *path, brim_text *out)
{
  char part[4096];
  FILE *file = fopen(path, "re");
  if (!file) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0 && out->length <= TEXT_BYTES_MAX;)
    brim_text_add_n(out, part, got);
  const bool failed = ferror(file) != 0;
  const int reason = errno;
  fclose(file);
  if (failed) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(reason));
  if (out->length <= TEXT_BYTES_MAX) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' has more than %zu bytes: take a part of it", path, TEXT_BYTES_MAX);
}

brim_status brim_cli_check_output(const char *path, const char *ending, const char *kind, bool force)
{
  if (!brim_ends_with(path, ending))
    return brim_fail(BRIM_ECONFIG, "-o %s: %s, so the file's name must end in %s", path, kind, ending);
  BRIM_TRY(brim_cli_check_folder(path));
  return brim_cli_check_absent(path, force);
}

brim_status brim_cli_check_folder(const char *path)
{
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--; /* "folder/" names a folder */
  while (length > 0 && path[length - 1] != '/') length--;
  char folder[BRIM_PATH_MAX] = ".";
  if (length >= sizeof folder) return brim_fail(BRIM_ECONFIG, "-o %.100s...: the name is too long", path);
  if (length > 0) snprintf(folder, sizeof folder, "%.*s", length > 1 ? (int)length - 1 : 1, path);
  if (brim_is_folder(folder)) return BRIM_OK;
  if (access(folder, F_OK) == 0) return brim_fail(BRIM_ECONFIG, "-o %s: '%s' is a file, not a folder", path, folder);
  return brim_fail(BRIM_ECONFIG, "-o %s: there is no folder '%s'\nmake it first, or name another", path, folder);
}
