/* The normalizers. See parts.h. Each reads one text and writes another; they alternate between two buffers. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "brim/host.h"
#include "parts.h"

brim_status pattern_replace(encoder *e, const pattern *p, slice in, slice by, buffer *out)
{
  size_t at = 0, done = 0;
  while (at <= in.bytes) {
    size_t range[2];
    bool found = false;
    BRIM_TRY(pattern_find(e, p, in.text, in.bytes, at, range, &found));
    if (!found) break;
    at = range[1];
    if (range[1] == range[0]) at += at < in.bytes ? (size_t)utf8_length(in.text + at, in.bytes - at) : 1;
    if (range[1] == range[0] && range[0] == done && done > 0) continue;
    BRIM_TRY(buffer_add(out, in.text + done, range[0] - done));
    BRIM_TRY(buffer_add(out, by.text, by.bytes));
    done = range[1];
  }
  return buffer_add(out, in.text + done, in.bytes - done);
}

static bool is_ascii(slice in)
{
  for (size_t i = 0; i < in.bytes; i++)
    if ((unsigned char)in.text[i] >= 0x80) return false;
  return true;
}

/* Applies a normal form of Unicode. ASCII text has all normal forms already. */
static brim_status add_form(slice in, int form, buffer *out, slice *result)
{
  utf8proc_uint8_t *text = NULL;
  if (is_ascii(in)) {
    *result = in;
    return BRIM_OK;
  }
  const utf8proc_ssize_t bytes =
      utf8proc_map((const utf8proc_uint8_t *)in.text, (utf8proc_ssize_t)in.bytes, &text, (utf8proc_option_t)form);
  if (bytes < 0) return brim_fail(BRIM_ENOMEM_HOST, "a text cannot be normalized: %s", utf8proc_errmsg(bytes));
  const brim_status status = buffer_add(out, (const char *)text, (size_t)bytes);
  free(text);
  *result = (slice){out->data, out->count};
  return status;
}

static brim_status add_lowercase(slice in, buffer *out)
{
  for (size_t at = 0; at < in.bytes; at += (size_t)utf8_length(in.text + at, in.bytes - at)) {
    const int32_t c = utf8_character(in.text + at);
    BRIM_TRY(buffer_add_character(out, c == 0x130 ? 'i' : utf8proc_tolower(c)));
    /* The only character whose lower case is two characters. */
    if (c == 0x130) BRIM_TRY(buffer_add_character(out, 0x307));
  }
  return BRIM_OK;
}

static slice strip(slice in, bool left, bool right)
{
  while (left && in.bytes > 0 && is_space(utf8_character(in.text))) {
    const size_t length = (size_t)utf8_length(in.text, in.bytes);
    in = (slice){in.text + length, in.bytes - length};
  }
  while (right && in.bytes > 0) {
    size_t at = in.bytes - 1;
    while (at > 0 && ((unsigned char)in.text[at] & 0xc0) == 0x80) at--;
    if (!is_space(utf8_character(in.text + at))) break;
    in.bytes = at;
  }
  return in;
}

static brim_status normalize_one(encoder *e, const normalize_step *n, slice in, buffer *out, slice *result)
{
  out->count = 0;
  switch (n->kind) {
  case NORMALIZE_FORM:
    return add_form(in, n->form, out, result);
  case NORMALIZE_STRIP:
    *result = strip(in, n->left, n->right);
    return BRIM_OK;
  case NORMALIZE_REPLACE:
    BRIM_TRY(pattern_replace(e, &n->find, in, n->text, out));
    break;
  case NORMALIZE_LOWERCASE:
    BRIM_TRY(add_lowercase(in, out));
    break;
  case NORMALIZE_PREPEND:
    if (in.bytes > 0) BRIM_TRY(buffer_add(out, n->text.text, n->text.bytes));
    BRIM_TRY(buffer_add(out, in.text, in.bytes));
    break;
  }
  *result = (slice){out->data, out->count};
  return BRIM_OK;
}

brim_status normalize(encoder *e, const char *text, size_t bytes, slice *out)
{
  int turn = 0;
  *out = (slice){text, bytes};
  for (size_t k = 0; k < e->t->normalize_count; k++) {
    const slice in = *out;
    BRIM_TRY(normalize_one(e, &e->t->normalize[k], in, &e->normal[turn], out));
    if (out->text == e->normal[turn].data) turn = !turn;
  }
  return BRIM_OK;
}
