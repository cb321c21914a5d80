/* The device profile: reads it, finds choices and adds choices. */
#include "profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../dnn.h"
#include "../product.h"

enum { FIELDS = 4 };

/* ---- lines ---- */

static brim_status keep_line(cuda_profile *p, char *text, char *const field[FIELDS])
{
  if (p->count == p->room) {
    const size_t room = p->room ? 2 * p->room : 64;
    const bool refused = brim_fault_hit(BRIM_FAULT_ALLOC, NULL);
    cuda_profile_line *grown = refused ? NULL : realloc(p->line, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the device profile");
    p->line = grown;
    p->room = room;
  }
  p->line[p->count++] = (cuda_profile_line){text, field[0], field[1], field[2], field[3]};
  return BRIM_OK;
}

/* Splits a line at its tabs. Returns false unless it has four non-empty fields. */
static bool split(char *text, char *field[FIELDS])
{
  for (int i = 0; i < FIELDS; i++) {
    field[i] = text;
    text += strcspn(text, "\t");
    if (text == field[i] || (*text == '\0') != (i == FIELDS - 1)) return false;
    *text++ = '\0';
  }
  return true;
}

/* Takes ownership of the text if it keeps the line. */
static brim_status take_line(cuda_profile *p, char **text, int number)
{
  char *field[FIELDS];
  (*text)[strcspn(*text, "\r\n")] = '\0';
  if ((*text)[0] == '\0' || (*text)[0] == '#') return BRIM_OK;
  if (!split(*text, field))
    return brim_fail(BRIM_EINVAL, "%s:%d: expected four fields separated by tabs: device, library, computation, choice",
                     p->path, number);
  BRIM_TRY(keep_line(p, *text, field));
  *text = NULL;
  return BRIM_OK;
}

static brim_status read_lines(cuda_profile *p, FILE *file)
{
  brim_status status = BRIM_OK;
  for (int number = 1; status == BRIM_OK; number++) {
    char *text = NULL;
    size_t room = 0;
    errno = 0;
    const ssize_t length = getline(&text, &room, file);
    if (length >= 0 && strlen(text) != (size_t)length)
      status = brim_fail(BRIM_EINVAL, "%s:%d: the line contains a zero byte", p->path, number);
    else if (length >= 0)
      status = take_line(p, &text, number);
    free(text);
    if (length < 0 && errno == 0) return BRIM_OK;
    if (length < 0) status = brim_fail(BRIM_EIO, "cannot read '%s': %s", p->path, strerror(errno));
  }
  return status;
}

brim_status cuda_profile_read(cuda_profile *profile, const char *path, int may_be_absent)
{
  *profile = (cuda_profile){.path = strdup(path)};
  if (!profile->path) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the device profile");
  struct stat info;
  const bool is_other =
      stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode); /* reading a pipe would block */
  if (is_other) errno = EINVAL;
  FILE *file = is_other ? NULL : fopen(path, "r");
  if (!file && errno == ENOENT && may_be_absent) return BRIM_OK;
  brim_status status = file ? read_lines(profile, file)
                            : brim_fail(BRIM_ELOAD, "opening the device profile %s: %s\nbackend.tune=true makes one",
                                        path, strerror(errno));
  if (file) fclose(file);
  if (status != BRIM_OK) cuda_profile_release(profile);
  return status;
}

brim_status cuda_profile_check(const cuda_profile *profile, const char *device)
{
  for (size_t i = 0; i < profile->count; i++)
    if (strcmp(profile->line[i].device, device) == 0) return BRIM_OK;
  if (profile->count == 0) return BRIM_OK;
  return brim_fail(
      BRIM_EINVAL,
      "the device profile %s has %zu choices for %s, and none for %s\nbackend.tune=true adds those of this "
      "device to it; without backend.profile the libraries choose",
      profile->path, profile->count, profile->line[0].device, device);
}

const char *cuda_profile_find(const cuda_profile *profile, const char *device, const char *library, const char *key)
{
  for (size_t i = profile->count; i > 0; i--) {
    const cuda_profile_line *l = &profile->line[i - 1];
    if (strcmp(l->key, key) == 0 && strcmp(l->library, library) == 0 && strcmp(l->device, device) == 0)
      return l->choice;
  }
  return NULL;
}

/* ---- adding ---- */

static bool is_field(const char *text)
{
  return text[0] != '\0' && text[strcspn(text, "\t\r\n")] == '\0';
}

static brim_status write_line(const char *path, const char *text)
{
  FILE *file = fopen(path, "a");
  if (!file) return brim_fail(BRIM_EIO, "opening the device profile %s: %s", path, strerror(errno));
  const bool written = fprintf(file, "%s\n", text) >= 0;
  if (fclose(file) != 0 || !written)
    return brim_fail(BRIM_EIO, "writing to the device profile %s: %s", path, strerror(errno));
  return BRIM_OK;
}

brim_status cuda_profile_add(cuda_profile *profile, const char *device, const char *library, const char *key,
                             const char *choice)
{
  char *text = NULL, *field[FIELDS];
  if (!is_field(device) || device[0] == '#' || !is_field(library) || !is_field(key) || !is_field(choice))
    return brim_fail(BRIM_EINTERNAL, "a field of the device profile is empty or contains a separator");
  if (asprintf(&text, "%s\t%s\t%s\t%s", device, library, key, choice) < 0)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the device profile");
  brim_status status = write_line(profile->path, text);
  if (status == BRIM_OK && split(text, field)) status = keep_line(profile, text, field);
  if (status != BRIM_OK) free(text);
  return status;
}

void cuda_profile_release(cuda_profile *profile)
{
  for (size_t i = 0; i < profile->count; i++) free(profile->line[i].text);
  free(profile->line);
  free(profile->path);
  *profile = (cuda_profile){.path = NULL};
}

/* ---- keys ---- */

/* Returns a name for the type of stored values. For fp32 the name also says whether products may round them. */
static const char *type_name(uint32_t dtype, int tf32)
{
  if (dtype == BRIM_DTYPE_BF16) return "bf16";
  if (dtype == BRIM_DTYPE_F16) return "f16";
  return tf32 ? "tf32" : "f32";
}

void cuda_product_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_product *p, int tf32)
{
  snprintf(text, CUDA_PROFILE_KEY_MAX,
           "product %" PRId64 "x%" PRId64 "x%" PRId64 " %c%c ld %" PRId64 ",%" PRId64 ",%" PRId64 " batch %" PRId64
           " stride %" PRId64 ",%" PRId64 ",%" PRId64 " %s to %s align %u%s%s%s%s",
           p->m, p->n, p->k, p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n', p->lda, p->ldb, p->ldd,
           cuda_max(1, p->batch), p->stride_a, p->stride_b, p->stride_d, type_name(p->type, tf32),
           type_name(p->type_d, 0), p->alignment ? p->alignment : CUDA_ALIGNMENT, p->accumulate ? " add" : "",
           p->bias ? " bias" : "", p->function == CUDA_FUNCTION_GELU_TANH ? " gelu" : "", p->keep ? " keep" : "");
}

void cuda_dnn_key(char text[CUDA_PROFILE_KEY_MAX], const struct cuda_dnn_conv *conv, int tf32)
{
  static const char *const result[] = {[CUDA_DNN_Y] = "y", [CUDA_DNN_X] = "dx", [CUDA_DNN_WEIGHT] = "dweight"};
  const cuda_conv *v = &conv->conv;
  snprintf(text, CUDA_PROFILE_KEY_MAX,
           "convolution %s x %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " weight %" PRId64 "x%" PRId64 "x%" PRId64
           "x%" PRId64 " stride %" PRId64 ",%" PRId64 " padding %" PRId64 ",%" PRId64 " dilation %" PRId64 ",%" PRId64
           " %s %s",
           result[conv->result], v->N, v->C, v->H, v->W, v->K, v->D, v->R, v->S, v->stride[0], v->stride[1],
           v->padding[0], v->padding[1], v->dilation[0], v->dilation[1], type_name(v->dtype, tf32),
           v->x_last ? "last" : "plain");
}
