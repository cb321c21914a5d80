/* Oxford 102 Flowers (Nilsback and Zisserman, 2008): 8189 pictures, 102 classes.
 *
 *     path/jpg/image_00001.jpg ...    picture number 1 and so on
 *     path/imagelabels.mat            `labels`: the class of each picture, from 1
 *     path/setid.mat                  `trnid` (1020), `valid` (1020), `tstid` (6149): numbers of pictures
 *
 * Label k here is class k + 1 in the files, as in torchvision. The names of the classes are their numbers. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "mat_list.h"
#include "set.h"

#define HOME "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
#define NAME_ROOM 4096
#define SETS 3
#define PICTURES_MAX 99999 /* image_%05d */
#define CLASSES_MAX 100000

static const char *const set_names[SETS] = {"trnid", "valid", "tstid"};

typedef struct flowers_params {
  const char *path;
  uint64_t train, test; /* bit i stands for set_names[i] */
  PIXELS_FIELDS;
} flowers_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, flowers_params, path, NULL, NULL, "folder with jpg/, imagelabels.mat and setid.mat, from " HOME),
    BRIM_PARAM(SET, flowers_params, train, "trnid", "trnid|valid|tstid",
               "lists of setid.mat to train on: trnid has 1020 images, valid 1020, tstid 6149"),
    BRIM_PARAM(SET, flowers_params, test, "tstid", "trnid|valid|tstid", "lists of setid.mat to test on"),
    PIXELS_PARAMS(flowers_params),
    BRIM_PARAMS_END,
};

static brim_status check_folder(const flowers_params *p)
{
  static const char *const parts[] = {"", "/jpg", "/imagelabels.mat", "/setid.mat"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    char name[NAME_ROOM];
    struct stat s;
    snprintf(name, sizeof name, "%.4000s%s", p->path, parts[i]);
    if (stat(name, &s) == 0) continue;
    return brim_fail(BRIM_ELOAD,
                     "no file '%s'\nset dataset.path to a folder with jpg/image_00001.jpg and so on, "
                     "imagelabels.mat and setid.mat\n102flowers.tgz, imagelabels.mat and setid.mat are at " HOME,
                     name);
  }
  if ((p->train & p->test) == 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "dataset.train and dataset.test have a list in common; test pictures must not be "
                                 "training pictures");
}

static brim_status add_list(const flowers_params *p, pixels_set *set, enum pixels_split split, const char *list,
                            const mat_list *labels)
{
  char path[NAME_ROOM], name[64];
  mat_list ids;
  snprintf(path, sizeof path, "%.4000s/setid.mat", p->path);
  BRIM_TRY(mat_list_read(path, list, PICTURES_MAX, &ids));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < ids.count && status == BRIM_OK; i++) {
    const int32_t id = ids.item[i];
    snprintf(name, sizeof name, "jpg/image_%05d.jpg", id);
    status = (size_t)id <= labels->count
                 ? pixels_set_add(set, split, name, labels->item[id - 1] - 1, NULL, (pixels_client){0, 0})
                 : brim_fail(BRIM_ELOAD, "'%s': '%s' names picture %d, but imagelabels.mat has labels of %zu", path,
                             list, id, labels->count);
  }
  mat_list_free(&ids);
  return status;
}

static brim_status add_all(const flowers_params *p, pixels_set *set, const mat_list *labels)
{
  int32_t classes = 0;
  char name[16];
  for (size_t i = 0; i < labels->count; i++)
    if (labels->item[i] > classes) classes = labels->item[i];
  for (int32_t i = 1; i <= classes; i++) {
    snprintf(name, sizeof name, "%d", i);
    BRIM_TRY(pixels_set_add_class(set, name));
  }
  for (int i = 0; i < SETS; i++) {
    if (p->train >> i & 1) BRIM_TRY(add_list(p, set, PIXELS_TRAIN, set_names[i], labels));
    if (p->test >> i & 1) BRIM_TRY(add_list(p, set, PIXELS_TEST, set_names[i], labels));
  }
  return BRIM_OK;
}

static brim_status list(const void *params, pixels_set *set)
{
  const flowers_params *p = params;
  char path[NAME_ROOM];
  mat_list labels;
  BRIM_TRY(check_folder(p));
  snprintf(path, sizeof path, "%.4000s/imagelabels.mat", p->path);
  BRIM_TRY(mat_list_read(path, "labels", CLASSES_MAX, &labels));
  const brim_status status = add_all(p, set, &labels);
  mat_list_free(&labels);
  return status;
}

static brim_status create(const void *params, void **self)
{
  const flowers_params *p = params;
  const pixels_setup setup = PIXELS_SETUP(p, list);
  return pixels_set_create(&setup, self);
}

static const brim_plugin plugin = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_DATASET,
    .id = "flowers102",
    .help = "Oxford 102 Flowers: 8189 images of 102 classes",
    .params_size = sizeof(flowers_params),
    .params = table,
    .create = create,
    .destroy = pixels_set_destroy,
    .ops = &pixels_set_ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-flowers102", "0.1", plugins)
