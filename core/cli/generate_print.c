/* Prints the first text that has not ended while it grows, and keeps the characters of later texts. See
 * generate_print.h. */
#include "cli/generate_print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/characters.h"
#include "cli/cli.h"

#define BETWEEN "---\n" /* between texts */

static brim_status write_out(brim_text *shown)
{
  const bool failed = fwrite(brim_text_str(shown), 1, shown->length, stdout) != shown->length || fflush(stdout) != 0;
  brim_text_clear(shown);
  return failed ? brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno)) : BRIM_OK;
}

static brim_status add_token(const brim_generate_printer *p, brim_text *to, int32_t token, bool first)
{
  const char *text = NULL;
  size_t bytes = 0;
  if (!p->has_text) {
    brim_text_printf(to, first ? "%" PRId32 : " %" PRId32, token);
    return BRIM_OK;
  }
  BRIM_TRY(p->data->ops->decode(p->data->self, token, &text, &bytes));
  brim_text_add_n(to, text, bytes);
  return BRIM_OK;
}

static brim_status add_prompt(const brim_generate_printer *p, brim_text *to)
{
  if (p->has_text) brim_text_add_n(to, brim_text_str(p->prompt), p->prompt->length);
  for (int64_t i = 0; i < p->prompt_count && !p->has_text; i++) BRIM_TRY(add_token(p, to, p->prompt_tokens[i], i == 0));
  return BRIM_OK;
}

static void drop_parts(brim_generate_printer *p)
{
  for (int64_t i = 0; i < p->count; i++) {
    brim_text_release(&p->part[i].bytes);
    brim_text_release(&p->part[i].shown);
    json_decref(p->part[i].numbers);
  }
  free(p->part);
  p->part = NULL;
  p->count = 0;
}

/* Prints the new part of the first text that is not complete, and the texts after it up to the next that has not ended.
 */
static brim_status print_on(brim_generate_printer *p)
{
  while (!p->json && p->printed < p->count) {
    brim_generate_part *part = &p->part[p->printed];
    BRIM_TRY(write_out(&part->shown));
    if (!part->ended) return BRIM_OK;
    p->printed++;
  }
  return BRIM_OK;
}

brim_status brim_generate_print_begin(brim_generate_printer *p, int64_t count)
{
  drop_parts(p);
  p->part = brim_xcalloc((size_t)count, sizeof *p->part);
  p->count = count;
  p->printed = 0;
  if (!p->texts) p->texts = json_array();
  for (int64_t i = 0; i < count; i++) {
    brim_generate_part *part = &p->part[i];
    part->numbers = json_array();
    if (p->json) continue;
    if (p->any) brim_text_add(&part->shown, BETWEEN);
    p->any = true;
    BRIM_TRY(add_prompt(p, &part->bytes));
    brim_characters_take(&part->bytes, false, &part->shown);
  }
  return print_on(p);
}

brim_status brim_generate_print_token(void *printer, int64_t index, int32_t token)
{
  brim_generate_printer *p = printer;
  brim_generate_part *part = &p->part[index];
  BRIM_TRY(add_token(p, &part->bytes, token, p->json && part->tokens == 0));
  part->tokens++;
  if (p->json) json_array_append_new(part->numbers, json_integer(token));
  brim_characters_take(&part->bytes, false, &part->shown);
  return index == p->printed ? print_on(p) : BRIM_OK;
}

brim_status brim_generate_print_end(void *printer, int64_t index)
{
  brim_generate_printer *p = printer;
  brim_generate_part *part = &p->part[index];
  if (!p->json) brim_text_add(&part->bytes, "\n");
  brim_characters_take(&part->bytes, true, &part->shown);
  part->ended = true;
  return print_on(p);
}

brim_status brim_generate_print_rest(brim_generate_printer *p)
{
  for (int64_t i = 0; i < p->count; i++)
    if (!p->part[i].ended) BRIM_TRY(brim_generate_print_end(p, i));
  for (int64_t i = 0; i < p->count && p->json; i++)
    json_array_append_new(p->texts, json_pack("{s:s%, s:O}", "text", brim_text_str(&p->part[i].shown),
                                              p->part[i].shown.length, "tokens", p->part[i].numbers));
  return BRIM_OK;
}

brim_status brim_generate_print_json(brim_generate_printer *p, const brim_generate_model *model, uint64_t seed)
{
  json_t *prompt = json_array();
  for (int64_t i = 0; i < p->prompt_count; i++) json_array_append_new(prompt, json_integer(p->prompt_tokens[i]));
  json_t *root = json_pack("{s:s, s:I, s:o, s:O}", model->run ? "run" : "model", model->path, "seed", (json_int_t)seed,
                           "prompt_tokens", prompt, "samples", p->texts);
  if (root && model->run) json_object_set_new(root, "checkpoint", json_string(model->checkpoint));
  return brim_cli_print_json(root);
}

void brim_generate_printer_release(brim_generate_printer *p)
{
  drop_parts(p);
  json_decref(p->texts);
  p->texts = NULL;
}
