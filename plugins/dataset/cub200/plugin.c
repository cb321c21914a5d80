/* Caltech-UCSD Birds-200-2011 (Wah, Branson, Welinder, Perona and Belongie): 11788 pictures of 200 kinds of birds.
 *
 *     path/images.txt               1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
 *     path/image_class_labels.txt   1 1
 *     path/train_test_split.txt     1 0           1 for training
 *     path/classes.txt              1 001.Black_footed_Albatross
 *     path/bounding_boxes.txt       1 60.0 27.0 325.0 304.0      left, top, width, height in pixels
 *     path/images/                  the pictures */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "set.h"
#include "table.h"

#define HOME "https://www.vision.caltech.edu/datasets/cub_200_2011/"
#define NAME_ROOM 4096

typedef struct cub200_params {
  const char *path;
  bool crop_to_box;
  PIXELS_FIELDS;
} cub200_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, cub200_params, path, NULL, NULL,
               "folder CUB_200_2011 (images/, images.txt and the other lists) of CUB_200_2011.tgz, from " HOME),
    BRIM_PARAM(BOOL, cub200_params, crop_to_box, "false", NULL, "crop images to the bird's box in bounding_boxes.txt"),
    PIXELS_PARAMS(cub200_params),
    BRIM_PARAMS_END,
};

enum { IMAGES, LABELS, SPLITS, CLASSES, BOXES, TABLES };
static const struct {
  const char *name;
  int numbers;
} files[TABLES] = {{"images.txt", 0},
                   {"image_class_labels.txt", 1},
                   {"train_test_split.txt", 1},
                   {"classes.txt", 0},
                   {"bounding_boxes.txt", 4}};

static brim_status check_folder(const cub200_params *p)
{
  for (int i = -2; i < (p->crop_to_box ? TABLES : BOXES); i++) {
    char name[NAME_ROOM];
    struct stat s;
    snprintf(name, sizeof name, "%.4000s%s%s", p->path, i == -2 ? "" : "/",
             i == -2 ? ""
             : i < 0 ? "images"
                     : files[i].name);
    if (stat(name, &s) == 0) continue;
    return brim_fail(BRIM_ELOAD,
                     "no file '%s'\nset dataset.path to a folder with images/, images.txt, image_class_labels.txt, "
                     "train_test_split.txt and classes.txt\nCUB_200_2011.tgz, which holds it, is at " HOME,
                     name);
  }
  return BRIM_OK;
}

/* Checks that the lists have one row for each picture. */
static brim_status check_counts(const cub200_params *p, const cub200_table *t)
{
  for (int i = LABELS; i < TABLES; i++)
    if (i != CLASSES && t[i].count != t[IMAGES].count && (i != BOXES || p->crop_to_box))
      return brim_fail(BRIM_ELOAD, "'%s': images.txt lists %zu pictures, but %s has %zu lines", p->path,
                       t[IMAGES].count, files[i].name, t[i].count);
  return BRIM_OK;
}

/* Returns the pixels that the box touches. Coordinates may lie outside the picture; they are clipped later. */
static pixels_box box_of(const double *n)
{
  const double most = 1 << 28;
  for (int i = 0; i < 4; i++)
    if (!(fabs(n[i]) < most)) return (pixels_box){0, 0, 0, 0};
  const int32_t left = (int32_t)floor(n[0]), top = (int32_t)floor(n[1]);
  return (pixels_box){left, top, (int32_t)ceil(n[0] + n[2]) - left, (int32_t)ceil(n[1] + n[3]) - top};
}

static brim_status add_picture(const cub200_params *p, pixels_set *set, const cub200_table *t, size_t i)
{
  char name[NAME_ROOM];
  const double label = t[LABELS].row[i].number[0], train = t[SPLITS].row[i].number[0];
  if (!(label >= 1 && label <= (double)t[CLASSES].count) || label != floor(label))
    return brim_fail(BRIM_ELOAD, "'%s/%s', line %zu: class %g, but classes.txt has %zu", p->path, files[LABELS].name,
                     i + 1, label, t[CLASSES].count);
  if (train != 0 && train != 1)
    return brim_fail(BRIM_ELOAD, "'%s/%s', line %zu: 0 or 1 expected, got %g", p->path, files[SPLITS].name, i + 1,
                     train);
  const int bytes = snprintf(name, sizeof name, "images/%s", t[IMAGES].row[i].text);
  if (bytes >= NAME_ROOM / 2)
    return brim_fail(BRIM_ELOAD, "'%s/images.txt', line %zu: the name is too long", p->path, i + 1);
  const pixels_box box = p->crop_to_box ? box_of(t[BOXES].row[i].number) : (pixels_box){0, 0, 0, 0};
  return pixels_set_add(set, train == 1 ? PIXELS_TRAIN : PIXELS_TEST, name, (int32_t)label - 1, &box,
                        (pixels_client){0, 0});
}

static brim_status read_tables(const cub200_params *p, cub200_table *t)
{
  for (int i = 0; i < (p->crop_to_box ? TABLES : BOXES); i++) {
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "%.4000s/%s", p->path, files[i].name);
    BRIM_TRY(cub200_table_read(name, files[i].numbers, &t[i]));
  }
  return check_counts(p, t);
}

static brim_status list(const void *params, pixels_set *set)
{
  const cub200_params *p = params;
  cub200_table t[TABLES] = {{0}};
  BRIM_TRY(check_folder(p));
  brim_status status = read_tables(p, t);
  for (size_t i = 0; i < t[CLASSES].count && status == BRIM_OK; i++)
    status = pixels_set_add_class(set, t[CLASSES].row[i].text);
  for (size_t i = 0; i < t[IMAGES].count && status == BRIM_OK; i++) status = add_picture(p, set, t, i);
  for (int i = 0; i < TABLES; i++) cub200_table_free(&t[i]);
  return status;
}

static brim_status create(const void *params, void **self)
{
  const cub200_params *p = params;
  const pixels_setup setup = PIXELS_SETUP(p, list);
  return pixels_set_create(&setup, self);
}

static const brim_plugin plugin = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_DATASET,
    .id = "cub200",
    .help = "Caltech-UCSD Birds-200-2011: 11788 images of 200 bird species",
    .params_size = sizeof(cub200_params),
    .params = table,
    .create = create,
    .destroy = pixels_set_destroy,
    .ops = &pixels_set_ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-cub200", "0.1", plugins)
