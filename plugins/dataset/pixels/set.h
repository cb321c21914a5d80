/* A dataset of picture files that each have a class: the common part of image_folder, flowers102 and cub200. A plugin
 * lists the files (pixels_setup.list); one table of ops in set.c opens, describes and reads them.
 *
 * Damaged files: opening a split finds files with bad headers before the first step. It fails, or, with
 * dataset.damaged=skip, leaves them out and warns with their number and names. Errors after the header are found only
 * when the pixels are decoded. Then the run ends and names the file, or, with `skip`, the next undamaged picture of the
 * split replaces it, with its own class. The replacement depends on the files alone, so the stream of samples is the
 * same for any number of threads and after a resume. Decoding every file before a run would take as long as an
 * epoch. */
#ifndef BRIM_PIXELS_SET_H
#define BRIM_PIXELS_SET_H
#include "pixels.h"

enum pixels_damaged { PIXELS_REFUSE, PIXELS_SKIP };

/* The fields that every such plugin has in its parameters, and their rows in the table of parameters. */
#define PIXELS_FIELDS                                                                                                  \
  int32_t damaged;                                                                                                     \
  int64_t max_pixels;                                                                                                  \
  bool exif_orientation, scaled_decoding, gray
#define PIXELS_PARAMS(S)                                                                                               \
  BRIM_PARAM(ENUM, S, damaged, "refuse", "refuse|skip",                                                                \
             "images that cannot be decoded: end with an error that names them (refuse), or skip them"),               \
      BRIM_PARAM(I64, S, max_pixels, "100000000", "[1,1000000000]", "images with more pixels count as damaged"),       \
      BRIM_PARAM(BOOL, S, exif_orientation, "true", NULL, "rotate JPEGs by their EXIF orientation"),                   \
      BRIM_PARAM(BOOL, S, scaled_decoding, "false", NULL,                                                              \
                 "decode JPEGs at 1/2, 1/4 or 1/8 of their size if that is large enough; faster, but pixels differ"),  \
      BRIM_PARAM(BOOL, S, gray, "false", NULL, "convert images to one gray channel, as Pillow's mode L")

typedef struct pixels_box {
  int32_t left, top, columns, rows; /* columns == 0 stands for the whole picture */
} pixels_box;

typedef struct pixels_set pixels_set;
enum pixels_split { PIXELS_TRAIN, PIXELS_TEST, PIXELS_FILES }; /* from PIXELS_FILES on: files of new samples */

typedef struct pixels_setup {
  const void *params;     /* the plugin's parameters */
  const char *folder;     /* names of files are relative to this folder */
  int32_t damaged;        /* enum pixels_damaged */
  bool gray;              /* samples have one channel */
  pixels_options options; /* side_needed: any number above 0 allows scaled decoding */
  /* [init] Adds every file and class; called once, before all other functions. Returns ELOAD if that fails. */
  brim_status (*list)(const void *params, pixels_set *set);
} pixels_setup;
#define PIXELS_SETUP(p, lister)                                                                                        \
  {                                                                                                                    \
    .params = (p), .folder = (p)->path, .damaged = (p)->damaged, .gray = (p)->gray,                                    \
    .options = {(uint64_t)(p)->max_pixels, (p)->exif_orientation, (p)->scaled_decoding}, .list = (lister)              \
  }

brim_status pixels_set_create(const pixels_setup *setup, void **self);
void pixels_set_destroy(void *self);
/* [init] The functions below are for list(). They copy the name, and return ENOMEM_HOST if there is no memory.
 * `client`: the part of `name` that is the client's name, in a set with clients; otherwise 0 bytes. */
typedef struct pixels_client {
  uint16_t at, bytes;
} pixels_client;
brim_status pixels_set_add_class(pixels_set *set, const char *name);
brim_status pixels_set_add(pixels_set *set, enum pixels_split which, const char *name, int32_t label,
                           const pixels_box *box, pixels_client client);
int64_t pixels_set_classes(const pixels_set *set);
int64_t pixels_set_count(const pixels_set *set, enum pixels_split which);
/* Returns the class with this name among the first `count` classes, which must be sorted by strcmp, or -1. */
int64_t pixels_set_find_class(const pixels_set *set, const char *name, int64_t count);

/* The ops of such plugins; their instance is the set. The second table is for plugins whose pictures may have clients.
 * Clients are numbered in the byte order of their names. */
extern const brim_dataset_ops pixels_set_ops, pixels_set_client_ops;
#endif
