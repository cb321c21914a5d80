/* Decodes pictures in JPEG and PNG files to red, green and blue of a byte each, with the results of Pillow's
 * convert("RGB"): gray is replicated, palettes are looked up, CMYK and YCCK are converted, 16-bit values are reduced to
 * their upper 8 bits, and alpha is dropped. One kind differs: in gray 16-bit PNGs Pillow's convert("RGB") clips values
 * at 255. A JPEG's pixels are turned according to its EXIF orientation.
 *
 * Files are read through a window of PIXELS_WINDOW bytes on the stack; only the libraries allocate memory. These
 * functions report an error for any invalid file; they never end the process. */
#ifndef BRIM_PIXELS_H
#define BRIM_PIXELS_H
#include <stdbool.h>

#include "brim/brim.h"

#define PIXELS_WINDOW 16384
#define PIXELS_CHANNELS 3

/* A stream of bytes, from a file's present position or from memory. */
typedef struct pixels_source {
  int fd;                /* -1: memory */
  const uint8_t *memory; /* the remaining bytes */
  size_t memory_bytes;
  bool failed; /* a read() failed: `reason` is its errno */
  int reason;
} pixels_source;

pixels_source pixels_source_file(int fd);
pixels_source pixels_source_memory(const void *bytes, size_t count);

typedef struct pixels_header {
  int64_t rows, columns; /* as decoded: turned already */
  int orientation;       /* EXIF's, 1 to 8; 1: not turned */
  /* Memory that libjpeg needs for the whole picture while it decodes: the coefficients, if they come in more than one
   * scan, as in progressive files. Its row buffers are not counted. */
  uint64_t decoding_bytes;
} pixels_header;

typedef struct pixels_options {
  uint64_t pixels_max; /* larger pictures are refused before decoding */
  bool orient;         /* turn pictures by EXIF */
  int64_t side_needed; /* JPEGs may be decoded at 1/2, 1/4 or 1/8 while no side is below this; 0: never */
} pixels_options;

/* [any thread] Reads a file's header. ELOAD names the file and the error; EIO if it cannot be read; ENOMEM_HOST. */
brim_status pixels_header_read(pixels_source *source, const char *name, const pixels_options *options,
                               pixels_header *out);
/* [any thread] Decodes the whole picture into picture->pixels. ELOAD likewise, also for a picture with more than
 * picture->room bytes, and for truncated or invalid data. */
brim_status pixels_decode(pixels_source *source, const char *name, const pixels_options *options,
                          brim_picture *picture);
/* Returns whether a name ends in .jpg, .jpeg or .png, in lower or upper case. */
bool pixels_is_name(const char *name);
#endif
