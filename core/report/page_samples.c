/* The samples of the last evaluation that the model got most wrong, from samples.json (train/samples.h). */
#include <math.h>
#include <string.h>

#include "observe/png.h"
#include "report/page_parts.h"

#define SHOWN_MAX 32
#define PICTURE_BYTES_MAX 16384 /* of a PNG file; larger ones are not shown */
#define INPUTS_MAX 8

const char *const brim_page_samples_style =
    ".samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.7rem,1fr));gap:.7rem;margin:0}"
    ".samples figure{margin:0;padding:.7rem;border-radius:.5rem;background:var(--card);break-inside:avoid;min-width:0}"
    ".samples img{display:block;width:100%;max-width:7.2rem;margin:0 auto .5rem;image-rendering:pixelated;"
    "border-radius:.25rem}.samples figcaption{font-size:.85rem;line-height:1.35;overflow-wrap:anywhere}"
    ".samples .answer{color:var(--bad);font-weight:600}.samples .label{color:var(--good)}"
    ".samples .more{color:var(--faint);font-variant-numeric:tabular-nums}"
    "@media print{.samples{grid-template-columns:repeat(6,1fr)}}";

/* A picture that is base64 with the signature of PNG; other text is not shown. */
static bool is_picture(const char *text)
{
  static const char signature[] = "\x89PNG\r\n\x1a\n";
  static char bytes[PICTURE_BYTES_MAX];
  size_t count = sizeof bytes;
  return brim_base64_read(text, bytes, &count) && count > sizeof signature &&
         memcmp(bytes, signature, sizeof signature - 1) == 0;
}

/* A class by its name or number; a list of real numbers. */
static void add_answer(const json_t *sample, const char *key, const char *name_key, brim_text *out)
{
  const json_t *value = json_object_get(sample, key);
  const char *name = brim_page_string(sample, name_key);
  if (name[0]) brim_svg_escape(out, name);
  if (!name[0] && json_is_integer(value)) brim_text_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  for (size_t i = 0; i < json_array_size(value) && i < INPUTS_MAX; i++)
    if (json_is_number(json_array_get(value, i)))
      brim_text_printf(out, "%s%.4g", i > 0 ? ", " : "", json_number_value(json_array_get(value, i)));
}

static void add_inputs(const json_t *list, brim_text *out)
{
  if (json_array_size(list) == 0) return;
  brim_text_add(out, "<br/>[");
  for (size_t i = 0; i < json_array_size(list) && i < INPUTS_MAX; i++)
    if (json_is_number(json_array_get(list, i)))
      brim_text_printf(out, "%s%.3g", i > 0 ? ", " : "", json_number_value(json_array_get(list, i)));
  brim_text_add(out, json_array_size(list) >= INPUTS_MAX ? ", ...]" : "]");
}

static void add_sample(const json_t *sample, brim_text *out)
{
  const char *picture = brim_page_string(sample, "picture");
  const double answer = brim_page_number(sample, "answer_probability"), loss = brim_page_number(sample, "loss"),
               index = brim_page_number(sample, "index");
  brim_text_add(out, "<figure>");
  if (picture[0] && is_picture(picture))
    brim_text_printf(out, "<img alt=\"\" src=\"data:image/png;base64,%s\"/>", picture);
  brim_text_add(out, "<figcaption><span class=\"answer\">");
  add_answer(sample, "answer", "answer_name", out);
  brim_text_add(out, "</span>");
  if (isfinite(answer)) brim_text_printf(out, " <span class=\"more\">%.1f&#160;%%</span>", 100 * answer);
  brim_text_add(out, "<br/>is <span class=\"label\">");
  add_answer(sample, "label", "label_name", out);
  brim_text_add(out, "</span><br/><span class=\"more\">");
  if (isfinite(loss)) brim_text_printf(out, fabs(loss) < 1e4 ? "loss %.2f" : "loss %.3g", loss);
  if (isfinite(index)) brim_text_printf(out, "<br/>no. %.15g", index);
  add_inputs(json_object_get(sample, "inputs"), out);
  brim_text_add(out, "</span></figcaption></figure>\n");
}

/* "The test samples with the greatest losses after step 4690, of 780 wrong among 10000: ..." */
static void add_heading(const brim_page_run *page, brim_text *out)
{
  const json_t *root = page->samples;
  const double wrong = brim_page_number(root, "wrong"), samples = brim_page_number(root, "samples");
  brim_text_add(out, "<p class=\"what\">The ");
  brim_svg_escape(out, brim_page_string(root, "split"));
  brim_text_printf(out, " samples with the greatest losses after %s %.15g", brim_compare_step(page->all),
                   brim_page_number(root, "step"));
  if (isfinite(samples) && isfinite(wrong) && strcmp(brim_page_string(root, "task"), "class") == 0)
    brim_text_printf(out, ", among %.15g wrong answers of %.15g: the answer with its probability, and the label", wrong,
                     samples);
  brim_text_add(out, ".</p>\n");
}

void brim_page_samples(const brim_page_run *page, brim_text *out)
{
  const json_t *worst = json_object_get(page->samples, "worst");
  if (json_array_size(worst) == 0) return;
  brim_page_begin(out, "Most wrong");
  add_heading(page, out);
  brim_text_add(out, "<div class=\"samples\">\n");
  for (size_t i = 0; i < json_array_size(worst) && i < SHOWN_MAX; i++) add_sample(json_array_get(worst, i), out);
  brim_text_add(out, "</div>\n");
  brim_page_end(out);
}
