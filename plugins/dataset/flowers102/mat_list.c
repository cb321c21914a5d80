/* See mat_list.h. matio reads the files; what it would give to HDF5 (MATLAB 7.3), or take for a file of MATLAB 4, which
 * has no mark to know it by, is refused before. */
#include "mat_list.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <matio.h>

#include "brim/host.h"

#define HEADER_BYTES 128
#define FILE_BYTES_MAX (64 << 20)

/* The header ends in a version, 0x0100, and the letters MI, each in the byte order of the file. */
static brim_status check_header(const char *path)
{
  unsigned char header[HEADER_BYTES];
  struct stat s;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &s) != 0) {
    const int reason = errno;
    if (fd >= 0) close(fd);
    return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(reason));
  }
  const ssize_t n = read(fd, header, sizeof header);
  close(fd);
  const unsigned char *end = header + HEADER_BYTES - 4;
  const int is_little = n == HEADER_BYTES && memcmp(end, "\x00\x01IM", 4) == 0,
            is_big = n == HEADER_BYTES && memcmp(end, "\x01\x00MI", 4) == 0;
  if (!is_little && !is_big) return brim_fail(BRIM_ELOAD, "'%s' is not a file of MATLAB 5 to 7.2 (.mat)", path);
  if (s.st_size > FILE_BYTES_MAX) return brim_fail(BRIM_ELOAD, "'%s' is larger than 64 MiB", path);
  return BRIM_OK;
}

/* Value i of a variable; NAN for a type that is no number. */
static double value_at(const matvar_t *v, size_t i)
{
  switch (v->class_type) {
  case MAT_C_DOUBLE:
    return ((const double *)v->data)[i];
  case MAT_C_SINGLE:
    return (double)((const float *)v->data)[i];
  case MAT_C_UINT8:
    return ((const uint8_t *)v->data)[i];
  case MAT_C_INT8:
    return ((const int8_t *)v->data)[i];
  case MAT_C_UINT16:
    return ((const uint16_t *)v->data)[i];
  case MAT_C_INT16:
    return ((const int16_t *)v->data)[i];
  case MAT_C_UINT32:
    return ((const uint32_t *)v->data)[i];
  case MAT_C_INT32:
    return ((const int32_t *)v->data)[i];
  default:
    return NAN;
  }
}

/* Are all values of a list in memory? Sets how many there are. */
static int has_values(const matvar_t *v, size_t *count)
{
  if (v->isComplex || v->rank != 2 || !v->dims || !v->data || v->data_size < 1) return 0;
  if (v->dims[0] != 1 && v->dims[1] != 1) return 0;
  *count = v->dims[0] * v->dims[1];
  return *count > 0 && *count <= v->nbytes / (size_t)v->data_size &&
         (size_t)v->data_size == Mat_SizeOfClass(v->class_type);
}

static brim_status take(const matvar_t *v, const char *path, const char *name, int32_t most, mat_list *out)
{
  size_t count = 0;
  if (!has_values(v, &count)) return brim_fail(BRIM_ELOAD, "'%s': '%s' is not a list of numbers", path, name);
  out->item = brim_try_calloc(count, sizeof *out->item);
  if (!out->item) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s' of '%s'", name, path);
  for (size_t i = 0; i < count; i++) {
    const double x = value_at(v, i);
    if (!(x >= 1 && x <= most) || x != floor(x))
      return brim_fail(BRIM_ELOAD, "'%s': number %zu of '%s' is %g; whole numbers from 1 to %d are expected", path,
                       i + 1, name, x, most);
    out->item[i] = (int32_t)x;
  }
  out->count = count;
  return BRIM_OK;
}

brim_status mat_list_read(const char *path, const char *name, int32_t most, mat_list *out)
{
  *out = (mat_list){0};
  BRIM_TRY(check_header(path));
  mat_t *file = Mat_Open(path, MAT_ACC_RDONLY);
  if (!file) return brim_fail(BRIM_ELOAD, "'%s' cannot be read: it is damaged", path);
  matvar_t *v = Mat_VarRead(file, name);
  const brim_status status = v ? take(v, path, name, most, out)
                               : brim_fail(BRIM_ELOAD, "'%s' is damaged, or holds no variable '%s'", path, name);
  Mat_VarFree(v);
  Mat_Close(file);
  if (status != BRIM_OK) mat_list_free(out);
  return status;
}

void mat_list_free(mat_list *list)
{
  free(list->item);
  *list = (mat_list){0};
}
