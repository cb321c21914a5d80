/* The device profile: a file with the library algorithm for each product or convolution, so that nothing is measured
 * twice, and plans and results can be repeated. Each line of the text file has one choice, as four fields separated by
 * tabs:
 *
 *     device    library and version    computation    choice, in the library's terms
 *
 * Empty lines and lines that begin with '#' are ignored. If two lines have the same computation, the later one
 * counts. */
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H
#include <stddef.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_profile_line {
  char *text; /* owned; device, library, key and choice are parts of it */
  const char *device, *library, *key, *choice;
} cuda_profile_line;

typedef struct cuda_profile {
  char *path;
  cuda_profile_line *line;
  size_t count, room;
} cuda_profile;

/* maximum bytes, including the final 0 */
#define CUDA_PROFILE_KEY_MAX 256
#define CUDA_PROFILE_CHOICE_MAX 512

/* [init] Reads a profile. Fails with EINVAL, naming file and line; with ELOAD if the file cannot be opened; or with
 * EIO. may_be_absent: a missing file counts as empty. */
brim_status cuda_profile_read(cuda_profile *profile, const char *path, int may_be_absent);
/* Fails with EINVAL if the profile has choices, but none for this device, because it then belongs to another device. */
brim_status cuda_profile_check(const cuda_profile *profile, const char *device);
/* Returns NULL if the profile has no choice. */
const char *cuda_profile_find(const cuda_profile *profile, const char *device, const char *library, const char *key);
/* Adds a choice, and appends it to the file. */
brim_status cuda_profile_add(cuda_profile *profile, const char *device, const char *library, const char *key,
                             const char *choice);
void cuda_profile_release(cuda_profile *profile);

/* Describe a computation in words, with everything that the library's choice may depend on. */
struct cuda_product;
struct cuda_dnn_conv;
void cuda_product_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_product *product, int tf32);
void cuda_dnn_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_dnn_conv *conv, int tf32);

#ifdef __cplusplus
}
#endif
#endif
