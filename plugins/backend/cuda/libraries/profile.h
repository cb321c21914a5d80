/* The device profile: which of a library's algorithms computes which product or convolution, so that what was measured
 * once is not measured again, and plans and results can be repeated. A text file, a line a choice, of four fields with
 * a tab between them:
 *
 *     device    library and version    what is computed    the choice, in its maker's words
 *
 * Empty lines and those that begin with '#' say nothing. Of two lines for the same the later one counts. */
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H
#include <stddef.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_profile_line {
  char *text; /* owned; device, library, key and choice point into it */
  const char *device, *library, *key, *choice;
} cuda_profile_line;

typedef struct cuda_profile {
  char *path;
  cuda_profile_line *line;
  size_t count, room;
} cuda_profile;

#define CUDA_PROFILE_KEY_MAX 256    /* characters and a 0 */
#define CUDA_PROFILE_CHOICE_MAX 512 /* likewise */

/* [init] May fail with EINVAL, naming file and line, ELOAD if it cannot be opened, or EIO. may_be_absent: a file that
 * does not exist is empty. */
brim_status cuda_profile_read(cuda_profile *profile, const char *path, int may_be_absent);
/* EINVAL if it has choices, and none of them for this device: then it is another's. */
brim_status cuda_profile_check(const cuda_profile *profile, const char *device);
/* NULL: nothing was chosen. */
const char *cuda_profile_find(const cuda_profile *profile, const char *device, const char *library, const char *key);
/* Remembers a choice, and writes it at the end of the file. */
brim_status cuda_profile_add(cuda_profile *profile, const char *device, const char *library, const char *key,
                             const char *choice);
void cuda_profile_release(cuda_profile *profile);

/* What is computed, in words: all that the library's choice may depend on. */
struct cuda_product;
struct cuda_dnn_conv;
void cuda_product_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_product *product, int tf32);
void cuda_dnn_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_dnn_conv *conv, int tf32);

#ifdef __cplusplus
}
#endif
#endif
