/* Shows the samples of the last evaluation for which the model is most wrong, from samples.json (train/samples.h). */
#include <math.h>
#include <string.h>

#include "observe/png.h"
#include "report/page_parts.h"

#define SHOWN_MAX 32
#define PICTURE_BYTES_MAX 16384 /* limit for a PNG file; larger ones are not shown */
#define INPUTS_MAX 8
#define TEXT_BYTES_MAX 240 /* limit for a text; train/samples.c writes no longer ones */

const char *const brim_page_samples_style =
    ".samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.7rem,1fr));gap:.7rem;margin:0}"
    ".samples figure{margin:0;padding:.7rem;border-radius:.5rem;background:var(--card);break-inside:avoid;min-width:0}"
    ".samples img{display:block;width:100%;max-width:7.2rem;margin:0 auto .5rem;image-rendering:pixelated;"
    "border-radius:.25rem}.samples figcaption{font-size:.85rem;line-height:1.35;overflow-wrap:anywhere}"
    ".samples .answer{color:var(--bad);font-weight:600}.samples .label{color:var(--good)}"
    ".samples.tokens{grid-template-columns:repeat(auto-fill,minmax(17rem,1fr))}.samples .text{white-space:pre-wrap;"
    "color:var(--faint)}.samples .text b{color:var(--good)}"
    ".samples .more{color:var(--faint);font-variant-numeric:tabular-nums}"
    "@media print{.samples{grid-template-columns:repeat(6,1fr)}}";

/* Whether this is base64 with the signature of a PNG file; other text is not shown as a picture. */
static bool is_picture(const char *text)
{
  static const char signature[] = "\x89PNG\r\n\x1a\n";
  static char bytes[PICTURE_BYTES_MAX];
  size_t count = sizeof bytes;
  return brim_base64_read(text, bytes, &count) && count > sizeof signature &&
         memcmp(bytes, signature, sizeof signature - 1) == 0;
}

/* Adds at most TEXT_BYTES_MAX bytes of a text, the first or (`end`) the last ones. */
static void add_text(const char *text, bool end, brim_text *out)
{
  const size_t length = strlen(text), most = length < TEXT_BYTES_MAX ? length : TEXT_BYTES_MAX;
  brim_svg_escape_n(out, end ? text + length - most : text, most);
}

/* Adds a token, with visible spaces and line ends. */
static void add_token(const json_t *sample, const char *key, const char *name_key, brim_text *out)
{
  const char *name = brim_json_string(sample, name_key);
  size_t count = 0;
  if (!name[0]) brim_text_printf(out, "no. %.15g", brim_json_number(sample, key));
  for (const char *s = name; *s && count++ < TEXT_BYTES_MAX; s++)
    if (*s == ' ' || *s == '\n' || *s == '\t')
      brim_text_add(out, *s == ' ' ? "\u2423" : *s == '\n' ? "\u21b5" : "\u21e5");
    else {
      size_t length = 1;
      while (((unsigned char)s[length] & 0xc0) == 0x80) length++;
      brim_svg_escape_n(out, s, length);
      s += length - 1;
    }
}

/* Adds "...before [label] after..." and the token that the model expected instead. */
static void add_token_sample(const json_t *sample, brim_text *out)
{
  const double loss = brim_json_number(sample, "loss"), rank = brim_json_number(sample, "label_rank");
  brim_text_add(out, "<figure><figcaption><div class=\"text\">");
  add_text(brim_json_string(sample, "before"), true, out);
  brim_text_add(out, "<b>");
  add_token(sample, "label", "label_name", out);
  brim_text_add(out, "</b>");
  add_text(brim_json_string(sample, "after"), false, out);
  brim_text_add(out, "</div>");
  if (json_is_integer(json_object_get(sample, "answer"))) {
    brim_text_add(out, "predicted <span class=\"answer\">");
    add_token(sample, "answer", "answer_name", out);
    brim_text_add(out, "</span>");
  } else if (isfinite(rank)) {
    brim_text_printf(out, "considered <span class=\"answer\">%.15g</span> other tokens more likely", rank);
  }
  brim_text_add(out, "<br/><span class=\"more\">");
  if (isfinite(loss)) brim_text_printf(out, "loss %.2f<br/>", loss);
  brim_text_printf(out, "sample %.15g, token %.15g</span></figcaption></figure>\n", brim_json_number(sample, "index"),
                   brim_json_number(sample, "position"));
}

/* Adds a class by its name or number, or a list of real numbers. */
static void add_answer(const json_t *sample, const char *key, const char *name_key, brim_text *out)
{
  const json_t *value = json_object_get(sample, key);
  const char *name = brim_json_string(sample, name_key);
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
  const char *picture = brim_json_string(sample, "picture");
  const double answer = brim_json_number(sample, "answer_probability"), loss = brim_json_number(sample, "loss"),
               index = brim_json_number(sample, "index");
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

/* Adds "The test samples with the greatest losses after step 4690, of 780 wrong among 10000: ..." */
static void add_heading(const brim_page_run *page, brim_text *out)
{
  const json_t *root = page->samples;
  const double wrong = brim_json_number(root, "wrong"), samples = brim_json_number(root, "samples");
  const bool is_tokens = strcmp(brim_json_string(root, "task"), "tokens") == 0;
  const json_t *first = json_array_get(json_object_get(root, "worst"), 0); /* all have the same members */
  brim_text_add(out, "<p class=\"what\">The ");
  brim_svg_escape(out, brim_json_string(root, "split"));
  brim_text_printf(out, " %s with the greatest losses after %s %.15g", is_tokens ? "tokens" : "samples",
                   brim_compare_step(page->all), brim_json_number(root, "step"));
  if (isfinite(samples) && is_tokens)
    brim_text_printf(out, ", of %.15g: each in its text%s", samples,
                     json_object_get(first, "answer")       ? ", and the token that the model considered most likely"
                     : json_object_get(first, "label_rank") ? ", and how many tokens the model considered more likely"
                                                            : "");
  if (isfinite(samples) && isfinite(wrong) && strcmp(brim_json_string(root, "task"), "class") == 0)
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
  const bool is_tokens = strcmp(brim_json_string(page->samples, "task"), "tokens") == 0;
  brim_text_printf(out, "<div class=\"samples%s\">\n", is_tokens ? " tokens" : "");
  for (size_t i = 0; i < json_array_size(worst) && i < SHOWN_MAX; i++)
    (is_tokens ? add_token_sample : add_sample)(json_array_get(worst, i), out);
  brim_text_add(out, "</div>\n");
  brim_page_end(out);
}
