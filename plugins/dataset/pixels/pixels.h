/* Pictures in JPEG and PNG files, decoded to red, green and blue of a byte each, as Pillow's convert("RGB") makes them:
 * gray is spread, palettes are looked up, CMYK and YCCK are mixed, of 16 bits the upper 8 are taken, and alpha is
 * dropped. One kind differs: gray PNGs of 16 bits, where Pillow's convert("RGB") clips values at 255 instead of taking
 * their upper 8 bits. A JPEG's pixels are turned as its EXIF orientation says.
 *
 * Files are read through a window of PIXELS_WINDOW bytes on the stack; nothing is allocated here, only in the
 * libraries. Whatever a file holds, these functions say what is wrong with it; they never end the process. */
#ifndef BRIM_PIXELS_H
#define BRIM_PIXELS_H
#include <stdbool.h>

#include "brim/brim.h"

#define PIXELS_WINDOW 16384
#define PIXELS_CHANNELS 3

/* Bytes in order, of a file from where it stands or of memory. */
typedef struct pixels_source {
  int fd;                /* -1: memory */
  const uint8_t *memory; /* what is left of it */
  size_t memory_bytes;
  bool failed; /* a read() has: `reason` is its errno */
  int reason;
} pixels_source;

pixels_source pixels_source_file(int fd);
pixels_source pixels_source_memory(const void *bytes, size_t count);
/* Up to `room` bytes; 0: there are no more, or reading has failed. */
size_t pixels_read(pixels_source *source, void *out, size_t room);

typedef struct pixels_header {
  int64_t rows, columns; /* as decoded: turned already */
  int orientation;       /* EXIF's, 1 to 8; 1: as it lies there */
  /* That libjpeg keeps of the whole picture until it is decoded: the coefficients, if they come in more than one scan,
   * as in progressive files. Rows that it works on are not counted. */
  uint64_t decoding_bytes;
} pixels_header;

typedef struct pixels_options {
  uint64_t pixels_max; /* more are refused before anything is decoded */
  bool orient;         /* by EXIF */
  int64_t side_needed; /* JPEGs may be decoded at 1/2, 1/4 or 1/8 as long as no side falls below this; 0: never */
} pixels_options;

/* [any thread] What a file's header says. ELOAD: `name`, and what is wrong with it; EIO: it could
 * not be read; ENOMEM_HOST. */
brim_status pixels_header_read(pixels_source *source, const char *name, const pixels_options *options,
                               pixels_header *out);
/* [any thread] The whole picture into picture->pixels. ELOAD likewise; a picture with more than picture->room bytes,
 * and one whose data ends early or cannot be right, are errors too. */
brim_status pixels_decode(pixels_source *source, const char *name, const pixels_options *options,
                          brim_picture *picture);
/* Is this what the name of a picture ends in: .jpg, .jpeg or .png, in small letters or capitals? */
bool pixels_is_name(const char *name);
#endif
