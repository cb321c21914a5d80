/* Fuzzes chat templates. The input is a template, a byte 0, and its context as JSON; without the 0 the context is a
 * conversation. Every input is refused with an error, or renders to valid UTF-8 with spans inside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/dataset/language/template_parts.h"

#define INPUT_BYTES_MAX ((size_t)1 << 14)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_template: %s\n", what);
  abort();
}

static json_t *read_context(const char *text, size_t bytes)
{
  static const char usual[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief\"}, {\"role\": \"user\", "
                              "\"content\": \"h\\u00e4?\\n\"}, {\"role\": \"assistant\", \"content\": [{\"type\": "
                              "\"text\", \"text\": \"yes\"}], \"tool_calls\": null}], \"tools\": [{\"function\": "
                              "{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": 2.5}}}], \"bos_token\": \"<s>\", "
                              "\"add_generation_prompt\": true, \"n\": 3, \"x\": [1, [2, \"t\"], {}]}";
  json_t *json = text ? json_loadb(text, bytes, 0, NULL) : json_loads(usual, 0, NULL);
  if (json && json_is_object(json)) return json;
  json_decref(json);
  return json_object();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size > INPUT_BYTES_MAX) return 0;
  const char *text = (const char *)data, *end = text + size;
  const char *zero = size ? memchr(text, 0, size) : NULL;
  template *t = NULL;
  template_output out;
  if (template_read("input", text, (size_t)((zero ? zero : end) - text), &t) != BRIM_OK) {
    check(brim_error_text()[0] && !t, "refused without a text, or something is left");
    return 0;
  }
  json_t *context = read_context(zero ? zero + 1 : NULL, zero ? (size_t)(end - zero - 1) : 0);
  if (template_render(t, context, 1767225600, &out) == BRIM_OK) {
    check(utf8_check(out.text, out.bytes) == out.bytes, "the output is not UTF-8");
    size_t at = 0;
    for (size_t i = 0; i < out.span_count; i++) {
      check(out.span[i].begin >= at && out.span[i].end >= out.span[i].begin, "a span is out of order");
      at = out.span[i].end;
    }
    check(at <= out.bytes, "a span is outside of the text");
  } else {
    check(brim_error_text()[0] && !out.text && !out.span, "refused without a text, or something is left");
  }
  template_output_free(&out);
  json_decref(context);
  template_free(t);
  return 0;
}
