/* JPEG through libjpeg-turbo, which is also Pillow's decoder. It uses Pillow's settings (accurate integer DCT, fancy
 * upsampling), so the pixels are the same.
 *
 * libjpeg reports fatal errors by longjmp. Only decode_guarded has a setjmp, and it changes none of its
 * variables after it. All state is in a struct that the caller owns. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "pixels_parts.h"

#define SEGMENT_BYTES_MAX 65533 /* maximum bytes of a marker after its length */
/* Maximum scans of a progressive file. A file with more is probably made to slow decoders down. */
#define SCANS_MAX 500

typedef struct decoder {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf out;
  pixels_input *input;
  int orientation;                 /* 0 if it is not known yet */
  uint8_t *segment;                /* memory for an APP1 marker; NULL before the first one */
  bool no_memory, ended;           /* ended: there are no more bytes */
  char what[JMSG_LENGTH_MAX + 32]; /* the error */
  uint8_t window[PIXELS_WINDOW];
} decoder;

/* ---- Errors ---- */

static _Noreturn void give_up(j_common_ptr jpeg)
{
  decoder *d = jpeg->client_data;
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  d->no_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
  snprintf(d->what, sizeof d->what, "is damaged: %s", d->ended ? "it ends before the picture does" : text);
  longjmp(d->out, 1);
}

/* Warnings (level -1) report invalid data. This function ignores warnings about data that is not decoded. */
static void on_message(j_common_ptr jpeg, int level)
{
  const int code = jpeg->err->msg_code;
  if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
      code == JWRN_TOO_MUCH_DATA)
    return;
  give_up(jpeg);
}

static void no_output(j_common_ptr jpeg)
{
  (void)jpeg;
}

static void on_progress(j_common_ptr jpeg)
{
  decoder *d = jpeg->client_data;
  if (d->jpeg.input_scan_number <= SCANS_MAX) return;
  snprintf(d->what, sizeof d->what, "has more than %d scans", SCANS_MAX);
  longjmp(d->out, 1);
}

/* ---- Source ---- */

static void no_start(j_decompress_ptr jpeg)
{
  (void)jpeg;
}

static boolean fill_window(j_decompress_ptr jpeg)
{
  decoder *d = jpeg->client_data;
  const size_t n = pixels_input_read(d->input, d->window, sizeof d->window);
  if (n == 0) { /* inserts an end marker, which some files lack; the decoder reports data that is missing before it */
    d->window[0] = 0xFF;
    d->window[1] = JPEG_EOI;
    d->ended = true;
  }
  d->source.next_input_byte = d->window;
  d->source.bytes_in_buffer = n > 0 ? n : 2;
  return TRUE;
}

static void skip(j_decompress_ptr jpeg, long count)
{
  decoder *d = jpeg->client_data;
  while (count > 0) {
    if (d->source.bytes_in_buffer == 0) fill_window(jpeg);
    const size_t n = (size_t)count < d->source.bytes_in_buffer ? (size_t)count : d->source.bytes_in_buffer;
    d->source.next_input_byte += n;
    d->source.bytes_in_buffer -= n;
    count -= (long)n;
  }
}

static uint8_t next_byte(decoder *d)
{
  if (d->source.bytes_in_buffer == 0) fill_window(&d->jpeg);
  d->source.bytes_in_buffer--;
  return *d->source.next_input_byte++;
}

/* Reads an APP1 marker, which may have EXIF data. All APP1 markers use the same memory. jpeg_save_markers would keep
 * all of them, and a file can have any number. */
static boolean read_app1(j_decompress_ptr jpeg)
{
  decoder *d = jpeg->client_data;
  const int high = next_byte(d), length = (high << 8 | next_byte(d)) - 2;
  if (length <= 0) return TRUE;
  if (d->orientation != 0) {
    skip(jpeg, length);
    return TRUE;
  }
  if (!d->segment) d->segment = (*jpeg->mem->alloc_large)((j_common_ptr)jpeg, JPOOL_PERMANENT, SEGMENT_BYTES_MAX);
  for (int i = 0; i < length; i++) d->segment[i] = next_byte(d);
  d->orientation = pixels_exif_orientation(d->segment, (size_t)length);
  return TRUE;
}

static void begin(decoder *d)
{
  jpeg_create_decompress(&d->jpeg);
  d->jpeg.client_data = d;
  d->source = (struct jpeg_source_mgr){.init_source = no_start,
                                       .fill_input_buffer = fill_window,
                                       .skip_input_data = skip,
                                       .resync_to_restart = jpeg_resync_to_restart,
                                       .term_source = no_start};
  d->jpeg.src = &d->source;
  d->progress.progress_monitor = on_progress;
  d->jpeg.progress = &d->progress;
  if (d->input->options->orient) jpeg_set_marker_processor(&d->jpeg, JPEG_APP0 + 1, read_app1);
  jpeg_read_header(&d->jpeg, TRUE);
  if (d->orientation == 0) d->orientation = 1;
}

static uint64_t rounded_up(uint64_t count, int unit)
{
  return (count + (uint64_t)unit - 1) / (uint64_t)unit * (uint64_t)unit;
}

/* Returns how many bytes jdcoefct.c allocates. */
static uint64_t coefficient_bytes(decoder *d)
{
  uint64_t blocks = 0;
  if (!jpeg_has_multiple_scans(&d->jpeg)) return 0;
  for (int c = 0; c < d->jpeg.num_components; c++) {
    const jpeg_component_info *i = &d->jpeg.comp_info[c];
    blocks += rounded_up(i->width_in_blocks, i->h_samp_factor) * rounded_up(i->height_in_blocks, i->v_samp_factor);
  }
  return blocks * sizeof(JBLOCK);
}

static void set_header(decoder *d, pixels_header *out)
{
  const pixels_turn t = pixels_turn_of(d->orientation, d->jpeg.image_height, d->jpeg.image_width);
  *out = (pixels_header){t.rows, t.columns, d->orientation, coefficient_bytes(d)};
}

/* ---- Pixels ---- */

/* Chooses the largest reduction for which the shorter side keeps `needed` pixels. */
static void choose_scale(decoder *d)
{
  const int64_t needed = d->input->options->side_needed;
  const int64_t shorter = d->jpeg.image_width < d->jpeg.image_height ? d->jpeg.image_width : d->jpeg.image_height;
  d->jpeg.scale_num = 1;
  d->jpeg.scale_denom = 1;
  while (needed > 0 && d->jpeg.scale_denom < 8 && shorter / (2 * d->jpeg.scale_denom) >= needed)
    d->jpeg.scale_denom *= 2;
}

static uint8_t times(int a, int b) /* returns a * b / 255, rounded */
{
  const int x = a * b + 128;
  return (uint8_t)(((x >> 8) + x) >> 8);
}

/* Adobe's files store inverted ink: 255 is no ink. Like Pillow, this treats every file as one of Adobe's. */
static void ink_to_light(const uint8_t *ink, uint8_t *out)
{
  for (int c = 0; c < 3; c++) out[c] = (uint8_t)(ink[3] - times(255 - ink[c], ink[3]));
}

static void put_row(const uint8_t *row, int64_t columns, int components, int64_t right, uint8_t *out)
{
  if (components == 3 && right == 1) {
    memcpy(out, row, (size_t)columns * 3);
    return;
  }
  for (int64_t x = 0; x < columns; x++, row += components, out += right * 3) {
    if (components == 4)
      ink_to_light(row, out);
    else
      memcpy(out, row, 3);
  }
}

static void read_rows(decoder *d, brim_picture *picture)
{
  struct jpeg_decompress_struct *jpeg = &d->jpeg;
  const int64_t columns = jpeg->output_width;
  const pixels_turn turn = pixels_turn_of(d->orientation, jpeg->output_height, columns);
  JSAMPARRAY row =
      (*jpeg->mem->alloc_sarray)((j_common_ptr)jpeg, JPOOL_IMAGE, (JDIMENSION)(columns * jpeg->output_components), 1);
  while (jpeg->output_scanline < jpeg->output_height) {
    uint8_t *out = picture->pixels + (turn.start + (int64_t)jpeg->output_scanline * turn.down) * 3;
    if (jpeg_read_scanlines(jpeg, row, 1) == 1) put_row(row[0], columns, jpeg->output_components, turn.right, out);
  }
  picture->rows = turn.rows;
  picture->columns = turn.columns;
}

static brim_status decode(decoder *d, pixels_header *header, brim_picture *picture)
{
  struct jpeg_decompress_struct *jpeg = &d->jpeg;
  begin(d);
  set_header(d, header);
  BRIM_TRY(pixels_check_size(d->input, jpeg->image_height, jpeg->image_width));
  if (!picture) return BRIM_OK;
  choose_scale(d);
  const bool ink = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
  jpeg->out_color_space = ink ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(jpeg);
  if ((uint64_t)jpeg->output_width * jpeg->output_height * 3 > picture->room)
    return pixels_fail(d->input, "has changed: it is larger than it was when it was opened");
  jpeg_start_decompress(jpeg);
  read_rows(d, picture); /* jpeg_finish_decompress would refuse a missing end marker */
  return BRIM_OK;
}

/* Local variables do not change between setjmp and longjmp. */
static brim_status decode_guarded(decoder *d, pixels_header *header, brim_picture *picture)
{
  if (setjmp(d->out)) return d->no_memory ? pixels_no_memory(d->input) : pixels_fail(d->input, d->what);
  return decode(d, header, picture);
}

brim_status pixels_jpeg(pixels_input *input, pixels_header *header, brim_picture *picture)
{
  decoder d;
  memset(&d.jpeg, 0, sizeof d.jpeg);
  memset(&d.progress, 0, sizeof d.progress);
  d.input = input;
  d.orientation = 0;
  d.segment = NULL;
  d.no_memory = d.ended = false;
  d.what[0] = '\0';
  d.jpeg.err = jpeg_std_error(&d.errors);
  d.errors.error_exit = give_up;
  d.errors.emit_message = on_message;
  d.errors.output_message = no_output;
  d.jpeg.client_data = &d;
  const brim_status status = decode_guarded(&d, header, picture);
  jpeg_destroy_decompress(&d.jpeg);
  return status;
}
