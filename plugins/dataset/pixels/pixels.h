/* Decodes pictures in JPEG and PNG files to one byte each for red, green and blue, with the same results as Pillow's
 * convert("RGB"): gray is replicated, palettes are looked up, CMYK and YCCK are converted, 16-bit values are reduced to
 * their upper 8 bits, and alpha is dropped. Only gray 16-bit PNGs differ: Pillow clips their values at 255. A JPEG's
 * pixels are turned according to its EXIF orientation.
 *
 * Files are read through a window of PIXELS_WINDOW bytes on the stack; only the libraries allocate memory. These
 * functions report an error for any invalid file; they never end the process. */
#ifndef BRIM_PIXELS_H
#define BRIM_PIXELS_H
#include <stdbool.h>

#include "brim/brim.h"

#define PIXELS_WINDOW 16384
#define PIXELS_CHANNELS 3

/* A stream of bytes: a file from its present position, or memory. */
typedef struct pixels_source {
  int fd;                /* -1: memory */
  const uint8_t *memory; /* the remaining bytes */
  size_t memory_bytes;
  bool failed; /* a read() failed, and `reason` is its errno */
  int reason;
} pixels_source;

pixels_source pixels_source_file(int fd);
pixels_source pixels_source_memory(const void *bytes, size_t count);

typedef struct pixels_header {
  int64_t rows, columns; /* size of the decoded picture, which is turned already */
  int orientation;       /* EXIF's orientation, 1 to 8; 1: the picture is not turned */
  /* The memory that libjpeg needs for the whole picture while it decodes. It holds the coefficients if they come in
   * more than one scan, as in progressive files. Row buffers are not counted. */
  uint64_t decoding_bytes;
} pixels_header;

typedef struct pixels_options {
  uint64_t pixels_max; /* maximum pixels; larger pictures are refused before decoding */
  bool orient;         /* turns pictures according to EXIF */
  int64_t side_needed; /* JPEGs may be decoded at 1/2, 1/4 or 1/8 if no side becomes shorter than this; 0: never */
} pixels_options;

/* [any thread] Reads a file's header. Returns ELOAD with the file and the error, EIO if the file cannot be read, or
 * ENOMEM_HOST. */
brim_status pixels_header_read(pixels_source *source, const char *name, const pixels_options *options,
                               pixels_header *out);
/* [any thread] Decodes the whole picture into picture->pixels. Returns the errors of pixels_header_read, and ELOAD if
 * the picture has more than picture->room bytes, or if data is truncated or invalid. */
brim_status pixels_decode(pixels_source *source, const char *name, const pixels_options *options,
                          brim_picture *picture);
/* Returns whether a name ends in .jpg, .jpeg or .png, in lower or upper case. */
bool pixels_is_name(const char *name);
#endif
