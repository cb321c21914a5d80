/* Chat templates: the part of Jinja that the templates of language models use. The output has the same bytes as
 * Jinja2's with transformers' settings (trim_blocks, lstrip_blocks, no escaping, loop controls, {% generation %}).
 *
 * A template is a program from outside brim, so its steps, depth and bytes are limited, and it can read only its
 * context. A statement, filter, test or method that this library does not know is refused: the message has its name,
 * line and column. */
#ifndef TEMPLATE_H
#define TEMPLATE_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

enum {
  TEMPLATE_BYTES_MAX = 1 << 20,           /* maximum bytes of a template */
  TEMPLATE_STEPS_MAX = 50000000,          /* maximum expressions, statements and elements of a rendering */
  TEMPLATE_DEPTH_MAX = 1000,              /* maximum depth of nested statements, expressions, macros and data */
  TEMPLATE_MEMORY_MAX = 256 * 1024 * 1024 /* maximum bytes of values, and of the output, in a rendering */
};

typedef struct template template;

/* Reads a template. `name` is used in messages. Returns ELOAD with line and column. */
brim_status template_read(const char *name, const char *text, size_t bytes, template **out);
void template_free(template *t); /* NULL: a no-op */

/* The bytes of the output that a {% generation %} block has written. */
typedef struct template_span {
  size_t begin, end;
} template_span;

typedef struct template_output {
  char *text; /* UTF-8 that ends with '\0' */
  size_t bytes;
  template_span *span; /* in order */
  size_t span_count;
} template_output;

/* [any thread] Renders the template. The keys of the object `context` are its variables. transformers always sets
 * messages, tools, documents (null if there are none) and add_generation_prompt, and the tokenizer's special tokens,
 * for example bos_token. `clock` is the time that strftime_now formats, in seconds since 1970, in local time. The
 * caller frees *out, which is empty on failure. Returns ELOAD (also with the message of raise_exception()) or
 * ENOMEM_HOST. */
brim_status template_render(const template *t, const json_t *context, int64_t clock, template_output *out);
void template_output_free(template_output *out);
/* Returns the text of a template that comes with brim, or NULL if brim has no template of this name. */
const char *template_shipped(const char *name);
#define TEMPLATE_SHIPPED "chatml, llama3, alpaca"
/* Returns whether the template has a {% generation %} block. */
int template_has_generation(const template *t);
#endif
