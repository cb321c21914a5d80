#include "columns.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "brim/host.h"

#define BLANKS " \t"
#define NUMBER_BYTES_MAX 128
#define LIST_BYTES 1024 /* maximum bytes of a list of names in a message */

static char *copy_text(const char *s)
{
  const size_t bytes = strlen(s) + 1;
  char *copy = brim_try_calloc(bytes, 1);
  if (copy) memcpy(copy, s, bytes);
  return copy;
}

static brim_status fail_memory(const char *file)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory to read '%s'", file);
}

/* ---- values ---- */

bool csv_is_missing(const csv_field *f)
{
  static const char *const words[] = {"", "na", "n/a", "nan", "null", "none", "?"};
  char word[8];
  const char *s = f->text + strspn(f->text, BLANKS);
  size_t n = strlen(s);
  while (n > 0 && strchr(BLANKS, s[n - 1])) n--;
  if (n >= sizeof word) return false;
  memcpy(word, s, n);
  word[n] = '\0';
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(word, words[i]) == 0) return true;
  return false;
}

bool csv_is_number(const csv_field *f, double *out)
{
  const char *s = f->text + strspn(f->text, BLANKS);
  const size_t n = strspn(s, "+-.0123456789eE");
  char digits[NUMBER_BYTES_MAX], *end;
  if (n == 0 || n >= sizeof digits || s[n + strspn(s + n, BLANKS)] != '\0') return false;
  memcpy(digits, s, n);
  digits[n] = '\0';
  *out = strtod(digits, &end);
  return *end == '\0' && fabs(*out) <= (double)FLT_MAX;
}

static enum csv_kind kind_of(const csv_field *f)
{
  double value;
  if (csv_is_missing(f)) return CSV_EMPTY;
  return csv_is_number(f, &value) ? CSV_NUMBER : CSV_TEXT;
}

/* ---- the header ---- */

void csv_header_free(csv_header *h)
{
  for (int32_t i = 0; h->name && i < h->columns; i++) free(h->name[i]);
  free(h->name);
  free(h->kind);
  free(h->first);
  *h = (csv_header){0};
}

static brim_status add_name(const char *file, csv_header *h, int32_t *room, const char *name)
{
  if (h->columns == *room) {
    const int32_t more = *room ? 2 * *room : 16;
    char **grown = brim_try_calloc((size_t)more, sizeof *grown);
    if (!grown) return fail_memory(file);
    if (h->columns) memcpy(grown, h->name, (size_t)h->columns * sizeof *grown);
    free(h->name);
    h->name = grown;
    *room = more;
  }
  h->name[h->columns] = copy_text(name);
  if (!h->name[h->columns]) return fail_memory(file);
  h->columns++;
  return BRIM_OK;
}

/* Removes blanks around a column's name. */
static char *trimmed(char *text, const csv_field *f)
{
  char *s = text + strspn(text, BLANKS);
  size_t n = strlen(s);
  while (!f->quoted && n > 0 && strchr(BLANKS, s[n - 1])) n--;
  s[n] = '\0';
  return s;
}

/* Reads the columns' names: the first record's fields, or their numbers. */
static brim_status read_names(csv_reader *r, bool has_header, csv_header *h)
{
  const char *file = csv_reader_name(r);
  int32_t room = 0;
  csv_field f = {0};
  bool more = true;
  while (!f.last) {
    BRIM_TRY(csv_reader_next(r, &f, &more));
    if (!more) return brim_fail(BRIM_ELOAD, "'%s' is empty", file);
    char number[16];
    snprintf(number, sizeof number, "%d", f.column + 1);
    char *copy = copy_text(has_header ? f.text : number);
    if (!copy) return fail_memory(file);
    const brim_status status = add_name(file, h, &room, trimmed(copy, &f));
    free(copy);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

static brim_status check_width(const csv_reader *r, const csv_header *h, const csv_field *f)
{
  const int32_t fields = f->column + 1;
  if (fields <= h->columns && f->last == (fields == h->columns)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ": %s%d field%s, but the first line has %d", csv_reader_name(r),
                   f->line, f->last ? "" : "more than ", fields, fields == 1 ? "" : "s", h->columns);
}

/* Copies as many whole characters of a text as fit. */
static void copy_shown(char *out, const char *text)
{
  size_t n = strcspn(text, "\r\n");
  if (n >= CSV_SHOWN_ROOM) n = CSV_SHOWN_ROOM - 1;
  while (n > 0 && text[n] && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
  memcpy(out, text, n);
  out[n] = '\0';
}

static void take_kind(csv_header *h, const csv_field *f)
{
  if (h->kind[f->column] != CSV_EMPTY) return;
  h->kind[f->column] = kind_of(f);
  if (h->kind[f->column] == CSV_TEXT) copy_shown(h->first[f->column], f->text);
}

static brim_status read_kinds(csv_reader *r, csv_header *h)
{
  csv_field f;
  bool more = true;
  h->kind = brim_try_calloc((size_t)h->columns, sizeof *h->kind);
  h->first = brim_try_calloc((size_t)h->columns, sizeof *h->first);
  if (!h->kind || !h->first) return fail_memory(csv_reader_name(r));
  for (;;) {
    BRIM_TRY(csv_reader_next(r, &f, &more));
    if (!more) return BRIM_OK;
    BRIM_TRY(check_width(r, h, &f));
    take_kind(h, &f);
    h->records += f.last;
  }
}

static brim_status pass_header(csv_reader *r, const csv_header *h)
{
  csv_field f;
  bool more = true;
  for (int32_t i = 0; i < h->columns && more; i++) BRIM_TRY(csv_reader_next(r, &f, &more));
  return BRIM_OK;
}

brim_status csv_header_read(csv_reader *r, bool has_header, csv_header *out)
{
  *out = (csv_header){0};
  brim_status status = read_names(r, has_header, out);
  if (status == BRIM_OK && !has_header) status = csv_reader_rewind(r);
  if (status == BRIM_OK) status = read_kinds(r, out);
  if (status == BRIM_OK) status = csv_reader_rewind(r);
  if (status == BRIM_OK && has_header) status = pass_header(r, out);
  if (status != BRIM_OK) csv_header_free(out);
  return status;
}

/* ---- columns by name ---- */

/* Returns the number of columns with this name, and the first of them in *out. */
static int32_t count_columns(const csv_header *h, const char *name, int32_t *out)
{
  int32_t count = 0;
  for (int32_t i = h->columns - 1; i >= 0; i--) {
    if (strcmp(h->name[i], name) != 0) continue;
    *out = i;
    count++;
  }
  return count;
}

static brim_status find_column(const csv_header *h, const char *file, brim_status status, const char *what,
                               const char *name, int32_t *out)
{
  *out = -1;
  const int32_t count = count_columns(h, name, out);
  if (count == 1) return BRIM_OK;
  if (count == 0) {
    char list[LIST_BYTES];
    size_t used = 0;
    list[0] = '\0';
    for (int32_t i = 0; i < h->columns && used + 8 < sizeof list; i++)
      used += (size_t)snprintf(list + used, sizeof list - used, "%s%.60s", i ? ", " : "", h->name[i]);
    brim_fail(status, "'%s' has no column '%.100s'%s\nits columns are %.1000s", file, name, what, list);
    return h->columns > 1 ? status : brim_fail_add(status, "dataset.separator sets the separator of fields");
  }
  return brim_fail(BRIM_ELOAD, "'%s' has %d columns named '%.100s'", file, count, name);
}

static brim_status add_chosen(const char *file, char **list, int32_t *count, const char *name, const char *key)
{
  for (int32_t i = 0; i < *count; i++)
    if (strcmp(list[i], name) == 0) return brim_fail(BRIM_ECONFIG, "dataset.%s names column '%.100s' twice", key, name);
  list[*count] = copy_text(name);
  if (!list[*count]) return fail_memory(file);
  (*count)++;
  return BRIM_OK;
}

/* Adds the column with this name. If there is none, "from..to" stands for a range of columns. */
static brim_status add_range(const csv_header *h, const char *file, const char *key, const char *text, char **list,
                             int32_t *count)
{
  int32_t first = -1, last = -1;
  char what[64], from[256];
  const char *dots = strstr(text, "..");
  snprintf(what, sizeof what, ", which dataset.%s names", key);
  if (count_columns(h, text, &first) > 0 || !dots || dots == text || dots[2] == '\0') {
    BRIM_TRY(find_column(h, file, BRIM_ECONFIG, what, text, &first));
    return add_chosen(file, list, count, h->name[first], key);
  }
  snprintf(from, sizeof from, "%.*s", (int)(dots - text), text);
  BRIM_TRY(find_column(h, file, BRIM_ECONFIG, what, from, &first));
  BRIM_TRY(find_column(h, file, BRIM_ECONFIG, what, dots + 2, &last));
  if (first > last)
    return brim_fail(BRIM_ECONFIG, "dataset.%s: '%.100s' is in the wrong order: '%.100s' comes after '%.100s' in '%s'",
                     key, text, from, dots + 2, file);
  for (int32_t i = first; i <= last; i++) BRIM_TRY(add_chosen(file, list, count, h->name[i], key));
  return BRIM_OK;
}

static brim_status add_list(const csv_header *h, const char *file, const char *key, const brim_names *names,
                            char ***list, int32_t *count)
{
  *list = brim_try_calloc((size_t)h->columns, sizeof **list);
  if (!*list) return fail_memory(file);
  for (size_t i = 0; i < names->count; i++) BRIM_TRY(add_range(h, file, key, names->item[i], *list, count));
  return BRIM_OK;
}

static bool is_among(char *const *list, int32_t count, const char *name)
{
  for (int32_t i = 0; i < count; i++)
    if (strcmp(list[i], name) == 0) return true;
  return false;
}

/* Returns whether a column has another use and is not a feature by default: label, group or client, or no name. */
static bool has_other_use(const char *name, const char *label, const char *group, const char *client)
{
  return name[0] == '\0' || strcmp(name, label) == 0 || strcmp(name, group) == 0 || strcmp(name, client) == 0;
}

/* Adds every numeric column without another use. A column without a name is an index that pandas has written. */
static brim_status add_numeric(const csv_header *h, const char *file, const csv_wishes *w, csv_chosen *c)
{
  for (int32_t i = 0; i < h->columns; i++) {
    const char *name = h->name[i];
    if (h->kind[i] != CSV_NUMBER || has_other_use(name, w->label, w->group, w->client)) continue;
    if (!w->with_targets && is_among(c->target, c->targets, name)) continue;
    int32_t only = i;
    BRIM_TRY(find_column(h, file, BRIM_ELOAD, "", name, &only));
    BRIM_TRY(add_chosen(file, c->feature, &c->features, name, "features"));
  }
  if (c->features > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' has no column of numbers%s", file,
                   c->targets > 0 || w->label[0] ? " besides the targets and the label" : "");
}

/* Explains why an unused column is not a feature. */
static void explain(const csv_header *h, int32_t i, const csv_wishes *w, char *out, size_t room)
{
  if (w->features.count > 0)
    snprintf(out, room, "not in dataset.features");
  else if (h->name[i][0] == '\0')
    snprintf(out, room, "without a name");
  else if (h->kind[i] == CSV_TEXT)
    snprintf(out, room, "text, '%s'", h->first[i]);
  else
    snprintf(out, room, "without a value");
}

/* Lists the columns that are left out: "id (text, 'n1'), note (without a value)". */
static void list_left_out(const csv_header *h, const csv_wishes *w, csv_chosen *c)
{
  size_t used = 0;
  int32_t unlisted = 0;
  for (int32_t i = 0; i < h->columns; i++) {
    const char *name = h->name[i];
    char why[64], word[192];
    if (is_among(c->feature, c->features, name) || is_among(c->target, c->targets, name) ||
        (name[0] && has_other_use(name, c->label, c->group, c->client)))
      continue;
    explain(h, i, w, why, sizeof why);
    if (name[0])
      snprintf(word, sizeof word, "%s%.100s (%s)", used ? ", " : "", name, why);
    else
      snprintf(word, sizeof word, "%scolumn %d (%s)", used ? ", " : "", i + 1, why);
    if (unlisted > 0 || used + strlen(word) + 32 > sizeof c->left_out)
      unlisted++;
    else
      used += (size_t)snprintf(c->left_out + used, sizeof c->left_out - used, "%s", word);
  }
  if (unlisted > 0) snprintf(c->left_out + used, sizeof c->left_out - used, " and %d more", unlisted);
}

static brim_status choose(const csv_header *h, const char *file, const csv_wishes *w, csv_chosen *out)
{
  int32_t at = 0;
  if ((w->targets.count > 0) == (w->label[0] != '\0'))
    return brim_fail(BRIM_ECONFIG,
                     "%s\ndataset.targets=NAME is a column of real numbers, dataset.label=NAME one of classes",
                     w->label[0] ? "dataset.targets and dataset.label are both set; set only one of them"
                                 : "neither dataset.targets nor dataset.label is set");
  out->label = w->label;
  out->group = w->group;
  out->client = w->client;
  BRIM_TRY(add_list(h, file, "targets", &w->targets, &out->target, &out->targets));
  BRIM_TRY(add_list(h, file, "features", &w->features, &out->feature, &out->features));
  if (w->label[0]) BRIM_TRY(find_column(h, file, BRIM_ECONFIG, ", which dataset.label names", w->label, &at));
  if (w->group[0]) BRIM_TRY(find_column(h, file, BRIM_ECONFIG, ", which dataset.group names", w->group, &at));
  if (w->client[0]) BRIM_TRY(find_column(h, file, BRIM_ECONFIG, ", which dataset.client names", w->client, &at));
  if (w->features.count == 0) BRIM_TRY(add_numeric(h, file, w, out));
  list_left_out(h, w, out);
  return BRIM_OK;
}

void csv_chosen_free(csv_chosen *c)
{
  for (int32_t i = 0; i < c->features; i++) free(c->feature[i]);
  for (int32_t i = 0; i < c->targets; i++) free(c->target[i]);
  free(c->feature);
  free(c->target);
  *c = (csv_chosen){0};
}

brim_status csv_choose(const csv_header *h, const char *file, const csv_wishes *w, csv_chosen *out)
{
  *out = (csv_chosen){0};
  const brim_status status = choose(h, file, w, out);
  if (status != BRIM_OK) csv_chosen_free(out);
  return status;
}

static brim_status set_uses(const csv_header *h, const char *file, const csv_chosen *c, bool answers, csv_use *use)
{
  static const char *const what = ", which the training file has";
  int32_t at = 0;
  for (int32_t i = 0; i < h->columns; i++) use[i] = (csv_use){-1, -1, false, false, false};
  for (int32_t i = 0; i < c->features; i++) {
    BRIM_TRY(find_column(h, file, BRIM_ELOAD, what, c->feature[i], &at));
    use[at].feature = i;
  }
  for (int32_t i = 0; answers && i < c->targets; i++) {
    BRIM_TRY(find_column(h, file, BRIM_ELOAD, what, c->target[i], &at));
    use[at].target = i;
  }
  if (answers && c->label[0]) {
    BRIM_TRY(find_column(h, file, BRIM_ELOAD, what, c->label, &at));
    use[at].label = true;
  }
  if (c->group[0]) {
    BRIM_TRY(find_column(h, file, BRIM_ELOAD, what, c->group, &at));
    use[at].group = true;
  }
  /* The client column may be missing in a test file. */
  for (int32_t i = 0; answers && c->client[0] && i < h->columns; i++)
    use[i].client = strcmp(h->name[i], c->client) == 0;
  return BRIM_OK;
}

brim_status csv_use_of(const csv_header *h, const char *file, const csv_chosen *c, bool answers, csv_use **out)
{
  *out = brim_try_calloc((size_t)h->columns, sizeof **out);
  if (!*out) return fail_memory(file);
  const brim_status status = set_uses(h, file, c, answers, *out);
  if (status == BRIM_OK) return BRIM_OK;
  free(*out);
  *out = NULL;
  return status;
}
