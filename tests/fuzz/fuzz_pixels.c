/* Fuzzes the decoding of JPEG and PNG files: every input gives a picture as large as its header says, or an error. The
 * buffer has exactly the size from the header, so that a byte too many is detected. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../plugins/dataset/pixels/pixels.h"

#define PIXELS_MAX (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_pixels: %s\n", what);
  abort();
}

static void decode(const uint8_t *data, size_t size, const pixels_options *options, const pixels_header *header)
{
  brim_picture picture = {.room = (uint64_t)(header->rows * header->columns * PIXELS_CHANNELS)};
  picture.pixels = malloc(picture.room);
  check(picture.pixels != NULL, "malloc failed");
  pixels_source source = pixels_source_memory(data, size);
  const brim_status status = pixels_decode(&source, "input", options, &picture);
  if (status == BRIM_OK) {
    check(picture.rows >= 1 && picture.rows <= header->rows, "rows are not those of the header");
    check(picture.columns >= 1 && picture.columns <= header->columns, "columns are not those of the header");
    check(options->side_needed > 0 || picture.rows == header->rows, "there are rows too few");
  } else {
    check(status == BRIM_ELOAD && brim_error_text()[0] != '\0', "refused without a text");
  }
  free(picture.pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const pixels_options whole = {.pixels_max = PIXELS_MAX, .orient = true},
                       smaller = {.pixels_max = PIXELS_MAX, .side_needed = 3};
  pixels_header header;
  pixels_source source = pixels_source_memory(data, size);
  const brim_status status = pixels_header_read(&source, "input", &whole, &header);
  if (status != BRIM_OK) {
    check(brim_error_text()[0] != '\0', "refused without a text");
    return 0;
  }
  check(header.rows >= 1 && header.columns >= 1 && header.rows * header.columns <= PIXELS_MAX, "impossible size");
  decode(data, size, &whole, &header);
  if (size % 4 == 0) {
    source = pixels_source_memory(data, size);
    check(pixels_header_read(&source, "input", &smaller, &header) == BRIM_OK, "orientation makes it unreadable");
    decode(data, size, &smaller, &header);
  }
  return 0;
}
