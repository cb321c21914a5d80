/* Chat templates: the part of Jinja that the templates of language models use, with the bytes that Jinja2 gives under
 * transformers' settings (trim_blocks, lstrip_blocks, no escaping, loop controls, {% generation %}).
 *
 * A template is a program from outside, so it is bounded in steps, depth and bytes, and reads nothing but its context.
 * A statement, filter, test or method that this library does not know is refused by name, with line and column. */
#ifndef TEMPLATE_H
#define TEMPLATE_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

enum {
  TEMPLATE_BYTES_MAX = 1 << 20,           /* of a template */
  TEMPLATE_STEPS_MAX = 50000000,          /* of a rendering: expressions, statements and elements */
  TEMPLATE_DEPTH_MAX = 1000,              /* of nested statements, expressions, macros and data */
  TEMPLATE_MEMORY_MAX = 256 * 1024 * 1024 /* bytes of values, and of the output, in a rendering */
};

typedef struct template template;

/* `name` is for messages. ELOAD names line and column. */
brim_status template_read(const char *name, const char *text, size_t bytes, template **out);
void template_free(template *t); /* NULL: a no-op */

/* Bytes of the output that a {% generation %} block wrote. */
typedef struct template_span {
  size_t begin, end;
} template_span;

typedef struct template_output {
  char *text; /* UTF-8, ends in '\0' */
  size_t bytes;
  template_span *span; /* in order */
  size_t span_count;
} template_output;

/* [any thread] Renders the template. The keys of `context`, an object, are its variables. transformers always sets
 * messages, tools, documents (null without documents) and add_generation_prompt, and the tokenizer's special tokens,
 * for example bos_token. `clock` is the time that strftime_now formats, in seconds since 1970, in local time. The
 * caller frees *out, which is empty on failure. ELOAD, also with the message of raise_exception(); ENOMEM_HOST. */
brim_status template_render(const template *t, const json_t *context, int64_t clock, template_output *out);
void template_output_free(template_output *out);
/* Returns the text of a template that comes with brim, or NULL if brim has no template of this name. */
const char *template_shipped(const char *name);
#define TEMPLATE_SHIPPED "chatml, llama3, alpaca"
/* Returns whether the template has a {% generation %} block. */
int template_has_generation(const template *t);
#endif
