/* Renders chat templates, for tests/text/test_templates.py and scripts/bench/chat_templates.py. Each line of standard
 * input is a JSON object {"template": text, "context": object, "clock": seconds}; each line of output is {"text": text,
 * "spans": [[begin, end], ...]} with bytes of {% generation %}, or {"error": text}. */
#include <stdio.h>
#include <stdlib.h>

#include "../../plugins/dataset/language/template.h"

static json_t *failed(void)
{
  return json_pack("{s:s}", "error", brim_error_text());
}

static json_t *render(const json_t *line)
{
  const json_t *source = json_object_get(line, "template");
  template *t = NULL;
  template_output out;
  if (template_read("template", json_string_value(source), json_string_length(source), &t) != BRIM_OK) return failed();
  const json_int_t clock = json_integer_value(json_object_get(line, "clock"));
  const brim_status status = template_render(t, json_object_get(line, "context"), clock, &out);
  template_free(t);
  if (status != BRIM_OK) return failed();
  json_t *spans = json_array();
  for (size_t i = 0; i < out.span_count; i++)
    json_array_append_new(spans, json_pack("[I, I]", (json_int_t)out.span[i].begin, (json_int_t)out.span[i].end));
  json_t *answer = json_object();
  json_object_set_new(answer, "text", json_stringn(out.text, out.bytes));
  json_object_set_new(answer, "spans", spans);
  template_output_free(&out);
  return answer;
}

int main(void)
{
  char *text = NULL;
  size_t room = 0;
  while (getline(&text, &room, stdin) > 0) {
    json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);
    json_t *answer = render(line);
    json_dumpf(answer, stdout, 0);
    putchar('\n');
    fflush(stdout);
    json_decref(answer);
    json_decref(line);
  }
  free(text);
  return 0;
}
