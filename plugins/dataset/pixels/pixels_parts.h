/* Declarations that the files of this folder share. */
#ifndef BRIM_PIXELS_PARTS_H
#define BRIM_PIXELS_PARTS_H
#include "pixels.h"

/* A source, and its first bytes. These were read to detect the format, and are read again by the decoder. */
typedef struct pixels_input {
  pixels_source *source;
  const char *name;
  const pixels_options *options;
  uint8_t first[8];
  size_t first_bytes, first_given;
} pixels_input;
size_t pixels_input_read(pixels_input *input, void *out, size_t room);
/* Fails with ELOAD and "'name' <what>", or with EIO if reading has failed. */
brim_status pixels_fail(const pixels_input *input, const char *what);
brim_status pixels_no_memory(const pixels_input *input);
/* Fails with ELOAD if there are no pixels, or more than the options allow. */
brim_status pixels_check_size(const pixels_input *input, int64_t rows, int64_t columns);

/* Describes where the pixels of a picture of `rows` x `columns` go when it is turned: pixel (row, column) goes to start
 * + row * down + column * right, in pixels. */
typedef struct pixels_turn {
  int64_t start, down, right;
  int64_t rows, columns; /* size of the turned picture */
} pixels_turn;
pixels_turn pixels_turn_of(int orientation, int64_t rows, int64_t columns);
/* Returns EXIF's orientation, 1 to 8, from the payload of an APP1 segment; 0 if the segment has none. */
int pixels_exif_orientation(const uint8_t *segment, size_t bytes);

/* If picture is NULL, these functions read only the header. */
brim_status pixels_jpeg(pixels_input *input, pixels_header *header, brim_picture *picture);
brim_status pixels_png(pixels_input *input, pixels_header *header, brim_picture *picture);
#endif
