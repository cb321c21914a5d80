/* A folder of pictures with a folder for each class, as torchvision's ImageFolder reads them:
 *
 *     path/train/daisy/1.jpg    path/test/daisy/7.jpg       or    path/daisy/1.jpg
 *     path/train/rose/2.png     path/test/rose/8.png              path/rose/2.png
 *
 * Classes are numbered in the byte order of their names; pictures are sorted by name. Folders in the folder of a class
 * belong to the class. With dataset.client=folder they are the clients of a federation; the same name is the same
 * client in every class. Files that do not end in .jpg, .jpeg or .png are ignored; a warning counts those that are
 * pictures of other formats. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "set.h"

#define NAME_ROOM 2048
#define DEPTH_MAX 16

typedef struct folder_params {
  const char *path, *train, *test;
  int32_t client;
  PIXELS_FIELDS;
} folder_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, folder_params, path, NULL, NULL,
               "folder with train/<class>/<image> and optionally test/ or val/, or with <class>/<image>"),
    BRIM_PARAM(STR, folder_params, train, "auto", NULL,
               "folder of the training split; auto: train if it exists, else all of path"),
    BRIM_PARAM(STR, folder_params, test, "auto", NULL,
               "folder of the test split; auto: test, val or validation; empty: no test split"),
    BRIM_PARAM(ENUM, folder_params, client, "none", "none|folder",
               "folder: training images are in <class>/<client>/<image>, for partition=natural"),
    PIXELS_PARAMS(folder_params),
    BRIM_PARAMS_END,
};

static bool is_folder(const char *path, const char *name)
{
  char full[2 * NAME_ROOM];
  struct stat s;
  snprintf(full, sizeof full, "%.2000s/%.2000s", path, name);
  return stat(full, &s) == 0 && S_ISDIR(s.st_mode);
}

static int is_visible(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
  return strcmp((*a)->d_name, (*b)->d_name);
}

static void names_free(struct dirent **entry, int count)
{
  for (int i = 0; i < count; i++) free(entry[i]);
  free(entry);
}

/* Reads the sorted names in folder `name` of `path`. */
static brim_status names_read(const char *path, const char *name, struct dirent ***entry, int *count)
{
  char full[2 * NAME_ROOM];
  snprintf(full, sizeof full, "%.2000s%s%.2000s", path, name[0] ? "/" : "", name);
  *count = scandir(full, entry, is_visible, by_bytes);
  if (*count >= 0) return BRIM_OK;
  if (errno == ENOMEM) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the names in '%s'", full);
  return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", full, strerror(errno));
}

static brim_status join(char *out, const char *folder, const char *name)
{
  const int used = snprintf(out, NAME_ROOM, "%s%s%s", folder, folder[0] ? "/" : "", name);
  return used < NAME_ROOM ? BRIM_OK : brim_fail(BRIM_ELOAD, "the name '%.200s...' is too long", out);
}

/* Pictures of a split that brim cannot read. */
typedef struct other_pictures {
  int64_t count;
  char first[NAME_ROOM];
} other_pictures;

static bool is_other_format(const char *name)
{
  static const char *const ends[] = {".webp", ".bmp",  ".gif", ".tif",  ".tiff", ".ppm", ".pgm",
                                     ".avif", ".heic", ".jp2", ".jfif", ".jpe",  ".jxl"};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; dot && i < sizeof ends / sizeof ends[0]; i++)
    if (strcasecmp(dot, ends[i]) == 0) return true;
  return false;
}

static void count_unreadable(other_pictures *u, const char *name)
{
  if (u->count++ == 0) snprintf(u->first, sizeof u->first, "%s", name);
}

/* The split and the class of the pictures that are added. */
typedef struct adding {
  pixels_set *set;
  enum pixels_split split;
  const char *path;
  int32_t label;
  bool has_clients;
  other_pictures *unreadable;
} adding;

/* Adds all pictures below a folder. At depth 0 it is the folder of a class, and at depth 1 it may be the folder of a
 * client. */
static brim_status add_pictures(const adding *a, const char *folder, pixels_client client, int depth)
{
  const char *path = a->path;
  struct dirent **entry;
  int count;
  if (depth > DEPTH_MAX) return brim_fail(BRIM_ELOAD, "'%s/%s' is nested too deep", path, folder);
  BRIM_TRY(names_read(path, folder, &entry, &count));
  brim_status status = BRIM_OK;
  for (int i = 0; i < count && status == BRIM_OK; i++) {
    char name[NAME_ROOM];
    status = join(name, folder, entry[i]->d_name);
    if (status != BRIM_OK) break;
    const size_t bytes = strlen(entry[i]->d_name);
    const pixels_client below = {(uint16_t)(strlen(name) - bytes), (uint16_t)bytes};
    if (is_folder(path, name))
      status = add_pictures(a, name, a->has_clients && depth == 0 ? below : client, depth + 1);
    else if (pixels_is_name(name) && a->has_clients && depth == 0)
      status = brim_fail(BRIM_ELOAD,
                         "'%s/%s' is not in a client's folder\nwith dataset.client=folder pictures must be in "
                         "<class>/<client>/; with dataset.client=none they have no clients",
                         path, name);
    else if (pixels_is_name(name))
      status = pixels_set_add(a->set, a->split, name, a->label, NULL, client);
    else if (is_other_format(name))
      count_unreadable(a->unreadable, name);
  }
  names_free(entry, count);
  return status;
}

/* Returns the label of the folder of a class. The training split adds classes; the other splits must know them. */
static brim_status label_of(pixels_set *set, enum pixels_split split, const char *path, const char *folder,
                            const char *name, int64_t classes, int32_t *label)
{
  *label = (int32_t)pixels_set_classes(set);
  if (split == PIXELS_TRAIN) return pixels_set_add_class(set, name);
  *label = (int32_t)pixels_set_find_class(set, name, classes);
  if (*label >= 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s/%s' holds a class '%s' that the training split does not have", path, folder, name);
}

/* Adds the folder of a class in a split. A class without training pictures also counts, because the test split may have
 * some. */
static brim_status add_class(pixels_set *set, enum pixels_split split, const char *path, const char *folder,
                             const char *name, int64_t classes, bool has_clients, other_pictures *unreadable)
{
  const int64_t before = pixels_set_count(set, split), unreadable_before = unreadable->count;
  int32_t label;
  BRIM_TRY(label_of(set, split, path, folder, name, classes, &label));
  const adding a = {set, split, path, label, has_clients && split == PIXELS_TRAIN, unreadable};
  BRIM_TRY(add_pictures(&a, folder, (pixels_client){0, 0}, 0));
  if (split == PIXELS_TRAIN && pixels_set_count(set, split) == before && unreadable->count == unreadable_before)
    brim_log(BRIM_LOG_WARN, "'%s/%s' counts as a class but holds no pictures: remove it if it is not a class", path,
             folder);
  return BRIM_OK;
}

static brim_status add_split(pixels_set *set, enum pixels_split split, const char *path, const char *folder,
                             bool has_clients)
{
  const int64_t classes = pixels_set_classes(set);
  other_pictures unreadable = {0};
  struct dirent **entry;
  int count;
  BRIM_TRY(names_read(path, folder, &entry, &count));
  brim_status status = BRIM_OK;
  for (int i = 0; i < count && status == BRIM_OK; i++) {
    char name[NAME_ROOM];
    status = join(name, folder, entry[i]->d_name);
    if (status == BRIM_OK && is_folder(path, name))
      status = add_class(set, split, path, name, entry[i]->d_name, classes, has_clients, &unreadable);
  }
  names_free(entry, count);
  if (unreadable.count > 0)
    brim_log(BRIM_LOG_WARN,
             "%" PRId64 " picture%s in '%s%s%s', such as '%s', %s left out: brim reads only JPEG and PNG files "
             "with names in .jpg, .jpeg or .png",
             unreadable.count, unreadable.count == 1 ? "" : "s", path, folder[0] ? "/" : "", folder, unreadable.first,
             unreadable.count == 1 ? "is" : "are");
  return status;
}

static const char *test_folder(const folder_params *p, bool has_train)
{
  static const char *const names[] = {"test", "val", "validation"};
  if (strcmp(p->test, "auto") != 0) return p->test;
  for (size_t i = 0; has_train && i < sizeof names / sizeof names[0]; i++)
    if (is_folder(p->path, names[i])) return names[i];
  return "";
}

static brim_status list(const void *params, pixels_set *set)
{
  const folder_params *p = params;
  const bool is_auto = strcmp(p->train, "auto") == 0, has_train = is_folder(p->path, is_auto ? "train" : p->train);
  const char *train = !is_auto ? p->train : has_train ? "train" : "", *test = test_folder(p, has_train);
  if (!is_folder(p->path, "."))
    return brim_fail(BRIM_ELOAD,
                     "no folder '%s'\nset dataset.path to a folder with train/<class>/<picture>.jpg, or "
                     "<class>/<picture>.jpg",
                     p->path);
  BRIM_TRY(add_split(set, PIXELS_TRAIN, p->path, train, p->client != 0));
  if (pixels_set_count(set, PIXELS_TRAIN) == 0)
    return brim_fail(BRIM_ELOAD,
                     "no pictures in '%s%s%s'\nit must hold a folder for each class, with .jpg, .jpeg or .png "
                     "files in it",
                     p->path, train[0] ? "/" : "", train);
  if (test[0]) BRIM_TRY(add_split(set, PIXELS_TEST, p->path, test, false));
  return BRIM_OK;
}

static brim_status create(const void *params, void **self)
{
  const folder_params *p = params;
  const pixels_setup setup = PIXELS_SETUP(p, list);
  return pixels_set_create(&setup, self);
}

static const brim_plugin plugin = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_DATASET,
    .id = "image_folder",
    .help = "JPEG and PNG files of any size, with a folder per class",
    .params_size = sizeof(folder_params),
    .params = table,
    .create = create,
    .destroy = pixels_set_destroy,
    .ops = &pixels_set_client_ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-image-folder", "0.1", plugins)
