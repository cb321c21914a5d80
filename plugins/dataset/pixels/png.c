/* PNG through libpng, which also reports errors by longjmp. As in jpeg.c, all state is in a struct that the caller
 * owns. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pixels_parts.h"

#define SIDE_MAX 1000000

typedef struct decoder {
  png_structp png;
  png_infop info;
  jmp_buf out;
  pixels_input *input;
  bool no_memory;
  char what[160];
} decoder;

static _Noreturn void give_up(png_structp png, png_const_charp text)
{
  decoder *d = png_get_error_ptr(png);
  snprintf(d->what, sizeof d->what, "is damaged: %s", text);
  longjmp(d->out, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
  (void)png;
  (void)text;
}

static png_voidp take(png_structp png, png_alloc_size_t bytes)
{
  decoder *d = png_get_mem_ptr(png);
  void *memory = malloc(bytes);
  if (!memory) d->no_memory = true;
  return memory;
}

static void give(png_structp png, png_voidp memory)
{
  (void)png;
  free(memory);
}

static void read_bytes(png_structp png, png_bytep out, size_t count)
{
  decoder *d = png_get_io_ptr(png);
  while (count > 0) {
    const size_t n = pixels_input_read(d->input, out, count);
    if (n == 0) png_error(png, "it ends before the picture does");
    out += n;
    count -= n;
  }
}

/* Converts every kind of picture to rows of RGB. Like Pillow's convert("RGB"), it drops alpha and ignores gamma. */
static int set_transforms(decoder *d)
{
  const int type = png_get_color_type(d->png, d->info);
  if (png_get_bit_depth(d->png, d->info) == 16) png_set_strip_16(d->png);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(d->png);
  if (!(type & PNG_COLOR_MASK_COLOR)) {
    png_set_expand_gray_1_2_4_to_8(d->png);
    png_set_gray_to_rgb(d->png);
  }
  png_set_strip_alpha(d->png);
  const int passes = png_set_interlace_handling(d->png);
  png_read_update_info(d->png, d->info);
  return passes;
}

static brim_status read_rows(decoder *d, const pixels_header *header, brim_picture *picture)
{
  const size_t stride = (size_t)header->columns * 3;
  const int passes = set_transforms(d);
  if (png_get_rowbytes(d->png, d->info) != stride) return pixels_fail(d->input, "has an unknown row format");
  for (int pass = 0; pass < passes; pass++)
    for (int64_t y = 0; y < header->rows; y++) png_read_row(d->png, picture->pixels + (size_t)y * stride, NULL);
  png_read_end(d->png, NULL);
  picture->rows = header->rows;
  picture->columns = header->columns;
  return BRIM_OK;
}

static brim_status decode(decoder *d, pixels_header *header, brim_picture *picture)
{
  png_set_read_fn(d->png, d, read_bytes);
  png_set_user_limits(d->png, SIDE_MAX, SIDE_MAX);
  /* Keeps only pixels, a palette and its alpha. Otherwise libpng would store other chunks in spite of
   * png_set_chunk_malloc_max (version 1.6.39 only warns), and would read some of them byte by byte. */
  png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
  png_set_crc_action(d->png, PNG_CRC_DEFAULT, PNG_CRC_QUIET_USE);
  png_read_info(d->png, d->info);
  *header = (pixels_header){png_get_image_height(d->png, d->info), png_get_image_width(d->png, d->info), 1, 0};
  BRIM_TRY(pixels_check_size(d->input, header->rows, header->columns));
  if (!picture) return BRIM_OK;
  if ((uint64_t)header->rows * (uint64_t)header->columns * 3 > picture->room)
    return pixels_fail(d->input, "has changed: it is larger than it was when it was opened");
  return read_rows(d, header, picture);
}

static brim_status decode_guarded(decoder *d, pixels_header *header, brim_picture *picture)
{
  if (setjmp(d->out)) return d->no_memory ? pixels_no_memory(d->input) : pixels_fail(d->input, d->what);
  return decode(d, header, picture);
}

brim_status pixels_png(pixels_input *input, pixels_header *header, brim_picture *picture)
{
  decoder d = {.input = input};
  d.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &d, give_up, ignore, &d, take, give);
  d.info = d.png ? png_create_info_struct(d.png) : NULL;
  const brim_status status = d.info ? decode_guarded(&d, header, picture) : pixels_no_memory(input);
  png_destroy_read_struct(&d.png, &d.info, NULL);
  return status;
}
