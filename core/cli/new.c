/* brim new: makes a folder with a plugin to start from, using the templates of the installation.
 *
 * share/brim/templates has a folder for each kind of plugin. Its files are copied, with @NAME@ in their text and NAME
 * before the first dot of a file name replaced by the plugin's name. brim writes them to a temporary folder, which it
 * renames at the end, so the result is complete or absent. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/install.h"
#include "base/log.h"
#include "base/text.h"
#include "brim/host.h"
#include "cli/cli.h"

#define MADE_MAX 64 /* limit for files and folders of a template */

typedef struct scaffold {
  brim_arena *arena;
  const char *templates; /* share/brim/templates, an absolute path */
  const char *kind, *name;
  const char *group;  /* whose options its plugins are */
  const char *folder; /* the folder to make */
  const char *aside;  /* temporary name of `folder` */
  const char *made[MADE_MAX];
  size_t made_count;
} scaffold;

/* ---- templates ---- */

static const char *find_templates(brim_arena *arena)
{
  char folder[BRIM_PATH_MAX];
  return brim_install_dir(folder, sizeof folder, BRIM_INSTALL_TEMPLATES) ? brim_arena_string(arena, folder) : NULL;
}

static brim_status list_names(brim_arena *arena, const char *folder, const char ***out, size_t *count)
{
  if (brim_folder_names(arena, folder, out, count)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "the template '%s' cannot be read: %s", folder, strerror(errno));
}

size_t brim_cli_new_kinds(brim_arena *arena, const char ***out)
{
  const char *folder = find_templates(arena);
  size_t count = 0;
  return folder && list_names(arena, folder, out, &count) == BRIM_OK ? count : 0;
}

/* ---- the request ---- */

static brim_status check_kind(scaffold *s, const char *kind)
{
  const char **known = NULL;
  size_t count = 0;
  s->templates = find_templates(s->arena);
  if (!s->templates)
    return brim_fail(BRIM_ELOAD, "this brim is installed without templates: there is no folder " BRIM_INSTALL_TEMPLATES
                                 " beside it; the Debian package brim-dev has it");
  BRIM_TRY(list_names(s->arena, s->templates, &known, &count));
  const char *list = "";
  for (size_t i = 0; i < count; i++) {
    if (strcmp(known[i], kind) == 0) {
      s->kind = known[i];
      s->group = brim_config_group_of(brim_kind_by_name(kind));
      return BRIM_OK;
    }
    list = brim_arena_printf(s->arena, "%s%s%s", list, i ? ", " : "", known[i]);
  }
  const brim_status status = brim_fail(BRIM_ECONFIG, "there is no template for '%s'; available: %s", kind, list);
  const char *best = brim_suggest_of(kind, known, count);
  return best ? brim_fail_add(status, "did you mean '%s'?", best) : status;
}

/* Returns a valid name that is close to the given one; NULL: no valid name is close. */
static const char *close_name(brim_arena *arena, const char *name)
{
  char *mended = brim_arena_string(arena, name);
  for (char *c = mended; *c; c++) {
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    if (*c == '-' || *c == ' ' || *c == '.') *c = '_';
  }
  return brim_is_plugin_id(mended) ? mended : NULL;
}

static brim_status check_name(scaffold *s, const char *name)
{
  s->name = name;
  if (strcmp(name, "id") == 0 || strcmp(name, "null") == 0)
    return brim_fail(BRIM_ECONFIG, "'%s' cannot be a plugin's name: it has another meaning in configurations", name);
  if (brim_is_plugin_id(name)) return BRIM_OK;
  const brim_status status =
      brim_fail(BRIM_ECONFIG, "'%s' cannot be a plugin's name: use 1 to %d characters from a-z, 0-9 and _", name,
                BRIM_PLUGIN_ID_MAX);
  const char *mended = close_name(s->arena, name);
  return mended ? brim_fail_add(status, "did you mean '%s'?", mended) : status;
}

/* Rejects a name if a plugin or an option of the same name would hide the new one, or be hidden by it. */
static brim_status check_unused(const scaffold *s, const brim_cli *cli)
{
  brim_cli_search search;
  const brim_registry_entry *entry = brim_registry_find(cli->registry, brim_kind_by_name(s->kind), s->name);
  const char *where = entry ? entry->file[0] ? entry->file : "brim itself" : NULL;
  brim_cli_search_path(cli, &search);
  for (size_t i = 0; i < search.count && !where; i++) {
    const char *file = brim_arena_printf(s->arena, "%s/%s/%s.yaml", search.folder[i], s->group, s->name);
    if (access(file, F_OK) == 0) where = file;
  }
  if (!where) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s=%s exists already, in %s\nchoose another name", s->group, s->name, where);
}

static brim_status check_place(scaffold *s, const char *into)
{
  struct stat info;
  if (into && !brim_is_folder(into))
    return brim_fail(BRIM_ECONFIG, "--into %s: there is no such folder\nmake it first, or name another", into);
  const char *slash = !into || brim_ends_with(into, "/") ? "" : "/";
  s->folder = brim_arena_printf(s->arena, "%s%s%s", into ? into : "", slash, s->name);
  s->aside = brim_arena_printf(s->arena, "%s%s.%s.%lld.new", into ? into : "", slash, s->name, (long long)getpid());
  if (lstat(s->folder, &info) != 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "'%s' exists already: nothing was written\nchoose another name, or another folder (--into)",
                   s->folder);
}

/* ---- writing ---- */

static brim_status read_text(const char *path, brim_text *out)
{
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &info) != 0) {
    if (fd >= 0) close(fd);
    return brim_fail(BRIM_ELOAD, "'%s' cannot be read: %s", path, strerror(errno));
  }
  const size_t bytes = (size_t)info.st_size;
  char *text = brim_xcalloc(bytes + 1, 1);
  const brim_status status = brim_read_whole(path, fd, bytes, text);
  if (status == BRIM_OK) brim_text_add_n(out, text, bytes);
  free(text);
  close(fd);
  return status;
}

static void add_substituted(const char *text, const char *mark, const char *name, brim_text *out)
{
  for (const char *next; (next = strstr(text, mark)); text = next + strlen(mark)) {
    brim_text_add_n(out, text, (size_t)(next - text));
    brim_text_add(out, name);
  }
  brim_text_add(out, text);
}

/* Called before each file or folder is made, so that it can be recorded for removal on failure. */
static brim_status check_room(const scaffold *s)
{
  if (s->made_count < MADE_MAX) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "the template has more than %d files and folders", MADE_MAX);
}

static brim_status copy_file(scaffold *s, const char *from, const char *to)
{
  brim_text template = {0}, text = {0};
  BRIM_TRY(check_room(s));
  s->made[s->made_count++] = to;
  brim_status status = read_text(from, &template);
  if (status == BRIM_OK) {
    add_substituted(brim_text_str(&template), "@NAME@", s->name, &text);
    status = brim_file_write(to, brim_text_str(&text), text.length);
  }
  brim_text_release(&template);
  brim_text_release(&text);
  return status;
}

static brim_status copy_folder(scaffold *s, const char *from, const char *to)
{
  const char **name = NULL;
  size_t count = 0;
  BRIM_TRY(check_room(s));
  if (mkdir(to, 0777) != 0)
    return brim_fail(BRIM_ECONFIG, "cannot make the folder '%s': %s", s->made_count ? to : s->folder, strerror(errno));
  s->made[s->made_count++] = to;
  BRIM_TRY(list_names(s->arena, from, &name, &count));
  for (size_t i = 0; i < count; i++) {
    const char *rest = brim_starts_with(name[i], "NAME.") ? name[i] + strlen("NAME") : NULL;
    const char *source = brim_arena_printf(s->arena, "%s/%s", from, name[i]);
    const char *target = rest ? brim_arena_printf(s->arena, "%s/%s%s", to, s->name, rest)
                              : brim_arena_printf(s->arena, "%s/%s", to, name[i]);
    BRIM_TRY(brim_is_folder(source) ? copy_folder(s, source, target) : copy_file(s, source, target));
  }
  return BRIM_OK;
}

static brim_status make(scaffold *s)
{
  const char *from = brim_arena_printf(s->arena, "%s/%s", s->templates, s->kind);
  brim_status status = copy_folder(s, from, s->aside);
  if (status == BRIM_OK && rename(s->aside, s->folder) != 0)
    status = brim_fail(BRIM_ECONFIG, "cannot make the folder '%s': %s", s->folder, strerror(errno));
  if (status == BRIM_OK) return BRIM_OK;
  while (s->made_count > 0) remove(s->made[--s->made_count]);
  return status;
}

/* ---- next steps ---- */

/* The paths by which a shell and CMake find this installation of brim. */
typedef struct whereabouts {
  const char *program; /* "brim", if the shell finds this program under that name; else its path */
  const char *prefix;  /* prefix for CMake; NULL: CMake finds it without one */
} whereabouts;

/* Finds the first program of this name on PATH, and its folder; false: PATH has no such program. */
static bool find_on_path(brim_arena *arena, const char **program, const char **folder)
{
  const char *path = getenv("PATH");
  for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
    *folder = brim_arena_string_n(arena, path, strcspn(path, ":"));
    *program = brim_arena_printf(arena, "%s/brim", *folder);
    if (access(*program, X_OK) == 0) return true;
  }
  return false;
}

static bool is_same_file(const char *a, const char *b)
{
  struct stat of_a, of_b;
  return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* CMake searches the prefixes of those folders on PATH that are named bin. */
static whereabouts find_brim(const scaffold *s)
{
  static const char self[] = "/proc/self/exe";
  const char *program = NULL, *folder = NULL;
  char resolved[PATH_MAX];
  const size_t below = strlen("/" BRIM_INSTALL_TEMPLATES);
  whereabouts w = {realpath(self, resolved) ? brim_arena_string(s->arena, resolved) : "brim",
                   brim_arena_string_n(s->arena, s->templates, strlen(s->templates) - below)};
  if (!find_on_path(s->arena, &program, &folder) || !is_same_file(program, self)) return w;
  w.program = "brim";
  if (brim_ends_with(folder, "/bin") &&
      is_same_file(brim_arena_string_n(s->arena, folder, strlen(folder) - strlen("/bin")), w.prefix))
    w.prefix = NULL;
  return w;
}

static void add_word(brim_text *out, const char *word)
{
  brim_cli_quote((const char *const[]){word, NULL}, out);
}

/* Adapts a line of commands to this installation: its path, and its prefix for CMake. */
static void add_command(const scaffold *s, const whereabouts *w, const char *line, size_t length, brim_text *out)
{
  static const char configure[] = "cmake -B build", run[] = "brim ";
  const char *text = brim_arena_string_n(s->arena, line, length);
  brim_text_add(out, "  ");
  if (brim_starts_with(text, run)) {
    add_word(out, w->program);
    brim_text_add(out, text + strlen(run) - 1);
  } else {
    brim_text_add(out, text);
  }
  if (strcmp(text, configure) == 0 && w->prefix) {
    brim_text_add(out, " ");
    add_word(out, brim_arena_printf(s->arena, "-DCMAKE_PREFIX_PATH=%s", w->prefix));
  }
  brim_text_add(out, "\n");
}

/* Prints the commands of the README, adapted to this machine. */
static brim_status print_steps(const scaffold *s)
{
  static const char begin[] = "```sh\n", end[] = "```";
  brim_text readme = {0}, out = {0};
  const whereabouts w = find_brim(s);
  const brim_status status = read_text(brim_arena_printf(s->arena, "%s/README.md", s->folder), &readme);
  const char *line = strstr(brim_text_str(&readme), begin);
  brim_text_printf(&out,
                   "%s is ready: %s/%s.c is %s %s to start from, and README.md describes the files. Next:\n\n  cd ",
                   s->folder, s->folder, s->name, strchr("aeiou", s->kind[0]) ? "an" : "a", s->kind);
  add_word(&out, s->folder);
  brim_text_add(&out, "\n");
  for (line = line ? line + strlen(begin) : end; *line && !brim_starts_with(line, end);) {
    const size_t length = strcspn(line, "\n");
    add_command(s, &w, line, length, &out);
    line += length + (line[length] == '\n');
  }
  if (status == BRIM_OK) fputs(brim_text_str(&out), stdout);
  brim_text_release(&readme);
  brim_text_release(&out);
  return status;
}

/* A package with only the program lacks the files with which plugins are built. */
static void warn_without_sdk(const scaffold *s)
{
  char folder[BRIM_PATH_MAX];
  if (brim_install_dir(folder, sizeof folder, BRIM_INSTALL_CMAKE)) return;
  brim_log(BRIM_LOG_WARN,
           "brim's headers and CMake files are not installed beside it (" BRIM_INSTALL_CMAKE
           "): install them before you build the %s",
           s->kind);
}

static brim_status run(const brim_cli *cli, scaffold *s, const brim_operands *operands, const char *into)
{
  if (operands->count < 2)
    return brim_fail(BRIM_ECONFIG, "brim new takes a kind and a name, as in `brim new policy night_shift`");
  BRIM_TRY(brim_cli_at_most(operands, 2, "brim new takes a kind and a name"));
  BRIM_TRY(check_kind(s, operands->word[0]));
  BRIM_TRY(check_name(s, operands->word[1]));
  BRIM_TRY(check_unused(s, cli));
  BRIM_TRY(check_place(s, into));
  BRIM_TRY(make(s));
  warn_without_sdk(s);
  return print_steps(s);
}

static const brim_option options[] = {
    {"--into", BRIM_OPTION_STRING, 0, "FOLDER", "parent of the new folder (default: the current folder)"}, {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  const char *into = NULL;
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &into, &operands);
  scaffold s = {.arena = &operands.arena};
  if (status == BRIM_OK) status = run(cli, &s, &operands, into);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_new = {
    "new", "create a plugin from a template", run_command,
    "usage: brim new policy|model|dataset|selector|aggregator|optimizer|schedule|loss|augment NAME [--into FOLDER]\n"
    "\n"
    "  brim new policy night_shift            night_shift/: a memory policy, with its build files and tests\n"
    "  brim new model mynet --into plugins    plugins/mynet/: a model\n"
    "  brim new dataset points                points/: a dataset\n"
    "  brim new selector steady               steady/: selects the clients of a federation (method=steady)\n"
    "  brim new aggregator fair               fair/: combines the updates of clients (aggregator=fair)\n"
    "  brim new optimizer mine                mine/: updates parameters (optimizer=mine)\n"
    "  brim new schedule slowly               slowly/: changes the learning rate over time (schedule=slowly)\n"
    "  brim new loss mildly                   mildly/: the loss that training minimises (loss=mildly)\n"
    "  brim new augment noise                 noise/: changes training samples at random (augmentation=noise)\n"
    "\n"
    "Creates a folder with a working plugin with parameters, a configuration, tests and a README.md, and prints the\n"
    "commands to build, test and use it. NAME may contain a-z, 0-9 and _. Existing files are not overwritten.\n",
    options};
