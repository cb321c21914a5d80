/* Conversations for language models, as JSON lines. The model's chat template renders them. The loss counts only the
 * answers. Several conversations are packed into each row of dataset.context tokens. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tokens/splits.h"
#include "brim/brim.h"
#include "cache.h"
#include "chat_model.h"
#include "make.h"

#define VERSION "chat 2"  /* must change when the same files give other tokens or packs */
#define BYTES_PER_TOKEN 4 /* average bytes of JSON per token, for an estimate */
#define ROWS_UNKNOWN ((int64_t)1 << 20)

typedef struct chat_params {
  brim_names path, validation, test;
  const char *tokenizer, *template, *cache;
  double test_fraction;
  int64_t context;
  int32_t learn, too_long;
  bool packing;
} chat_params;

static const brim_param table[] = {
    BRIM_PARAM(NAMES, chat_params, path, NULL, NULL,
               "training conversations: a file of JSON lines, or a list of files"),
    BRIM_PARAM(NAMES, chat_params, validation, "[]", NULL, "validation conversations; []: no validation split"),
    BRIM_PARAM(NAMES, chat_params, test, "[]", NULL, "test conversations; []: see test_fraction"),
    BRIM_PARAM(F64, chat_params, test_fraction, "0", "[0,1)",
               "share of the training conversations that becomes the test split if test is empty; 0: no test split"),
    BRIM_PARAM(PATH, chat_params, tokenizer, "", NULL,
               "the model's tokenizer: a folder with tokenizer.json, or the file"),
    BRIM_PARAM(PATH, chat_params, template, "", NULL,
               "chat template, a file or one that comes with brim (" TEMPLATE_SHIPPED
               "); empty: that of the tokenizer's folder (chat_template.jinja, chat_template.json, or chat_template in "
               "tokenizer_config.json)"),
    BRIM_PARAM(ENUM, chat_params, learn, "answers", "answers|last|all",
               "tokens that count: those of all answers, of the last answer, or all tokens"),
    BRIM_PARAM(I64, chat_params, context, "2048", "[1,16777216]", "tokens in a row"),
    BRIM_PARAM(ENUM, chat_params, too_long, "refuse", "refuse|cut|skip",
               "conversations with more tokens than a row: refuse to train; cut their last tokens; skip them"),
    BRIM_PARAM(BOOL, chat_params, packing, "true", NULL,
               "several conversations in a row, which do not see each other; false: one in a row"),
    BRIM_PARAM(PATH, chat_params, cache, "", NULL, "folder of cached tokens; empty: ~/.cache/brim"),
    BRIM_PARAMS_END};

typedef struct chat_dataset {
  const chat_params *params;
  chat_model language; /* opened when needed */
  chat_set set[SPLITS];
  char summary[SPLITS][512];
  char *report[SPLITS];
  char kept[TOKENIZER_IDENTITY_ROOM];
} chat_dataset;

static const brim_names *files_of(const chat_params *p, int split)
{
  if (split == VALIDATION) return &p->validation;
  return split == TEST && p->test.count > 0 ? &p->test : &p->path;
}

static bool is_share(const chat_params *p, int split)
{
  return split != VALIDATION && p->test.count == 0 && p->test_fraction > 0;
}

static brim_status find_split(const chat_params *p, const char *name, int *out)
{
  *out = split_by_name(name);
  if (*out < SPLITS && files_of(p, *out)->count > 0 && (*out != TEST || p->test.count > 0 || is_share(p, TEST)))
    return BRIM_OK;
  return split_missing(name);
}

/* ---- identity ---- */

typedef struct identity {
  uint64_t key, bytes; /* hash and size of the data's files */
  int64_t changed;     /* the latest time at which one of them changed */
} identity;

/* Returns false if a file is missing. */
static bool identify(const chat_params *p, int split, identity *out)
{
  const brim_names *files = files_of(p, split);
  const int64_t how[] = {p->context, p->learn, p->too_long, p->packing, is_share(p, split), split == TEST};
  *out = (identity){.key = cache_key_add(CACHE_KEY_START, VERSION, sizeof VERSION)};
  out->key = cache_key_add(cache_key_add(out->key, how, sizeof how), &p->test_fraction, sizeof p->test_fraction);
  bool found = true;
  for (size_t i = 0; i < files->count; i++) {
    uint64_t bytes = 0;
    int64_t changed = 0;
    found = cache_key_add_file(&out->key, files->item[i], &bytes, &changed) && found;
    out->bytes += bytes;
    if (changed > out->changed) out->changed = changed;
  }
  found = found && cache_key_add_tokenizer(&out->key, p->tokenizer);
  const char *shipped = template_shipped(p->template);
  if (shipped) out->key = cache_key_add(out->key, shipped, strlen(shipped));
  return found && (shipped || !p->template[0] || cache_key_add_file(&out->key, p->template, NULL, NULL));
}

/* ---- opening ---- */

static brim_status open_language(chat_dataset *d)
{
  const chat_params *p = d->params;
  if (d->language.vocabulary) return BRIM_OK;
  if (!p->tokenizer[0])
    return brim_fail(BRIM_ECONFIG, "dataset=chat needs dataset.tokenizer: the folder of a model with its "
                                   "tokenizer.json\nwith model=hf it is the folder in model.weights");
  return chat_model_open(p->tokenizer, p->template, &d->language);
}

static brim_status make(chat_dataset *d, int split, const identity *id, chat_set *out)
{
  const chat_params *p = d->params;
  const brim_names *files = files_of(p, split);
  BRIM_TRY(open_language(d));
  brim_log(BRIM_LOG_INFO, "tokenizing '%s'%s, once", files->item[0], files->count > 1 ? " and others" : "");
  const chat_source source = {files->item, files->count, is_share(p, split) ? p->test_fraction : 0, split == TRAIN};
  const chat_options options = {p->context, (enum chat_too_long)p->too_long, !p->packing, id->key};
  chat_maker maker = {.vocabulary = d->language.vocabulary,
                      .learn = (enum chat_learn)p->learn,
                      .template = d->language.template,
                      .variables = d->language.variables,
                      .clock = id->changed};
  brim_status status = tokenizer_encoder_open(maker.vocabulary, &maker.encoder);
  if (status == BRIM_OK) status = chat_make(&maker, &source, &options, out);
  chat_maker_release(&maker);
  return status;
}

static void summarize(chat_dataset *d, int split)
{
  const chat_head *h = d->set[split].head;
  const chat_facts *f = &h->facts;
  char *out = d->summary[split];
  const int64_t places = h->tokens - h->documents;
  int at = snprintf(
      out, sizeof d->summary[split],
      "%" PRId64 " conversation%s in %" PRId64 " row%s of %" PRId64 " tokens, %.1f %% full; %.1f %% of the "
      "tokens count",
      h->documents, h->documents == 1 ? "" : "s", h->rows, h->rows == 1 ? "" : "s", h->context,
      100 * (double)places / ((double)h->rows * (double)h->context), 100 * (double)h->counted / (double)places);
  const size_t room = sizeof d->summary[split];
  if (f->skipped > 0) at += snprintf(out + at, room - (size_t)at, "; too long and left out: %" PRId64, f->skipped);
  if (f->cut > 0) at += snprintf(out + at, room - (size_t)at, "; too long and cut: %" PRId64, f->cut);
  if (f->unanswered > 0)
    snprintf(out + at, room - (size_t)at,
             "; without an answer at the end: %" PRId64 ", whose last messages are left out", f->unanswered);
}

static brim_status chat_open(void *self, const char *name)
{
  chat_dataset *d = self;
  char path[CACHE_NAME_ROOM];
  identity id;
  int split = 0;
  BRIM_TRY(find_split(d->params, name, &split));
  chat_set *set = &d->set[split];
  if (set->head) return BRIM_OK;
  const bool keeps = identify(d->params, split, &id) && cache_path(d->params->cache, "chat", id.key, path);
  if (!keeps || !chat_set_open(path, id.key, set)) {
    BRIM_TRY(make(d, split, &id, set));
    if (keeps) chat_set_keep(path, set);
  }
  summarize(d, split);
  return BRIM_OK;
}

/* ---- describing ---- */

/* Returns whether the head of a split is known, from an open set or from one in the cache. */
static bool find_head(const chat_dataset *d, int split, chat_head *out)
{
  char path[CACHE_NAME_ROOM];
  identity id;
  if (d->set[split].head) {
    *out = *d->set[split].head;
    return true;
  }
  return identify(d->params, split, &id) && cache_path(d->params->cache, "chat", id.key, path) &&
         chat_set_peek(path, id.key, out);
}

/* Estimates a split for a plan. The tokenizer and the data may be missing. */
static brim_status estimate(const chat_dataset *d, int split, brim_dataset_info *out)
{
  identity id;
  (void)identify(d->params, split, &id);
  const uint64_t none = CACHE_KEY_START;
  uint64_t key = none;
  if (cache_key_add_tokenizer(&key, d->params->tokenizer)) {
    BRIM_TRY(open_language((chat_dataset *)(uintptr_t)d));
    out->classes = tokenizer_rows(d->language.vocabulary);
  }
  const double share =
      is_share(d->params, split) ? split == TEST ? d->params->test_fraction : 1 - d->params->test_fraction : 1;
  const double tokens = (double)id.bytes * share / BYTES_PER_TOKEN;
  out->count = id.bytes > 0 ? (int64_t)(tokens / (double)d->params->context) + 1 : ROWS_UNKNOWN;
  out->mapped_bytes = id.bytes / BYTES_PER_TOKEN * sizeof(uint32_t);
  out->estimated = 1;
  return BRIM_OK;
}

static brim_status chat_describe(const void *self, const char *name, brim_dataset_info *out)
{
  const chat_dataset *d = self;
  chat_head head;
  int split = 0;
  BRIM_TRY(find_split(d->params, name, &split));
  *out = (brim_dataset_info){.sample = {1, {d->params->context}},
                             .dtype = BRIM_DTYPE_I32,
                             .task = BRIM_TASK_TOKENS,
                             .documents = d->params->packing};
  if (!find_head(d, split, &head)) return estimate(d, split, out);
  out->count = head.rows;
  out->classes = head.vocabulary;
  if (d->set[split].head)
    out->summary = d->summary[split];
  else
    out->mapped_bytes = head.bytes;
  return BRIM_OK;
}

static brim_status chat_host_bytes(const void *self, const char *name, uint64_t *out)
{
  const chat_dataset *d = self;
  chat_head head;
  brim_dataset_info info;
  int split = 0;
  BRIM_TRY(find_split(d->params, name, &split));
  if (find_head(d, split, &head)) {
    *out = head.bytes;
    return BRIM_OK;
  }
  BRIM_TRY(chat_describe(self, name, &info));
  *out = info.mapped_bytes;
  return BRIM_OK;
}

static brim_status chat_read(const void *self, const char *name, int64_t index, void *values, void *label)
{
  const chat_dataset *d = self;
  int split = 0;
  BRIM_TRY(find_split(d->params, name, &split));
  const chat_set *set = &d->set[split];
  if (!set->head) return brim_fail(BRIM_EINVAL, "split '%s' is not open", name);
  int32_t *tokens = values;
  chat_set_read(set, index, tokens, d->params->packing ? tokens + set->head->context : NULL, label);
  return BRIM_OK;
}

/* Records a hash of the vocabulary, because in another vocabulary the same ids mean other texts. Records nothing for a
 * plan without a tokenizer. */
static brim_status chat_keep(void *self, const char **json)
{
  chat_dataset *d = self;
  chat_head head;
  uint64_t key = CACHE_KEY_START;
  *json = NULL;
  if (!find_head(d, TRAIN, &head)) {
    if (!cache_key_add_tokenizer(&key, d->params->tokenizer)) return BRIM_OK;
    BRIM_TRY(open_language(d));
    head.vocabulary = tokenizer_rows(d->language.vocabulary);
    head.vocabulary_hash = tokenizer_hash(d->language.vocabulary);
  }
  *json = tokenizer_identity(head.vocabulary, head.vocabulary_hash, d->kept);
  return BRIM_OK;
}

/* ---- the report ---- */

static brim_status chat_report(const void *self, const char *name, const char **json)
{
  chat_dataset *d = (chat_dataset *)(uintptr_t)self;
  int split = 0;
  BRIM_TRY(find_split(d->params, name, &split));
  const chat_head *h = d->set[split].head;
  if (!h) return brim_fail(BRIM_EINVAL, "split '%s' is not open", name);
  const chat_facts *f = &h->facts;
  json_t *lengths =
      json_pack("{s:I, s:I, s:I, s:I, s:I}", "least", (json_int_t)f->length[0], "median", (json_int_t)f->length[1],
                "90 %", (json_int_t)f->length[2], "99 %", (json_int_t)f->length[3], "most", (json_int_t)f->length[4]);
  json_t *left_out =
      json_pack("{s:I, s:I, s:I, s:I, s:I}", "conversations too long", (json_int_t)f->skipped, "conversations cut",
                (json_int_t)f->cut, "tokens cut", (json_int_t)f->cut_tokens, "conversations without a last answer",
                (json_int_t)f->unanswered, "tokens after the last that counts", (json_int_t)f->tail_tokens);
  json_t *root = json_pack("{s:I, s:o, s:o, s:{s:s, s:I, s:I}}", "conversations", (json_int_t)f->conversations,
                           "tokens of a conversation", lengths, "left out", left_out, "longest conversation", "file",
                           files_of(d->params, split)->item[f->longest_file], "line", (json_int_t)f->longest_line,
                           "tokens", (json_int_t)f->longest);
  free(d->report[split]);
  d->report[split] = root ? json_dumps(root, 0) : NULL;
  json_decref(root);
  *json = d->report[split];
  return *json ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for the report");
}

/* ---- text of tokens ---- */

/* Adds no end of text, because the text is a prompt that the model continues. */
static brim_status chat_encode(const void *self, const char *text, size_t bytes, int32_t *tokens, size_t *count)
{
  chat_dataset *d = (chat_dataset *)(uintptr_t)self;
  BRIM_TRY(open_language(d));
  return tokenizer_encode_into(d->language.vocabulary, text, bytes, TOKENIZER_BEGIN, tokens, count);
}

static brim_status chat_decode(const void *self, int32_t token, const char **text, size_t *bytes)
{
  chat_dataset *d = (chat_dataset *)(uintptr_t)self;
  BRIM_TRY(open_language(d));
  *text = tokenizer_piece(d->language.vocabulary, token, bytes);
  return BRIM_OK;
}

static brim_status chat_end_of_text(const void *self, int32_t *out)
{
  chat_dataset *d = (chat_dataset *)(uintptr_t)self;
  BRIM_TRY(open_language(d));
  *out = tokenizer_end_of_text(d->language.vocabulary);
  return BRIM_OK;
}

static brim_status chat_converse(void *self, const char *json, brim_conversation *out)
{
  chat_dataset *d = self;
  BRIM_TRY(open_language(d));
  return chat_model_converse(&d->language, json, out);
}

/* ---- the plugin ---- */

static brim_status chat_create(const void *params, void **self)
{
  chat_dataset *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  *self = d;
  return BRIM_OK;
}

static void chat_destroy(void *self)
{
  chat_dataset *d = self;
  if (!d) return;
  for (int i = 0; i < SPLITS; i++) {
    chat_set_close(&d->set[i]);
    free(d->report[i]);
  }
  chat_model_close(&d->language);
  free(d);
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = chat_open,
                                     .describe = chat_describe,
                                     .read = chat_read,
                                     .host_bytes = chat_host_bytes,
                                     .validation_split = "validation",
                                     .encode = chat_encode,
                                     .decode = chat_decode,
                                     .end_of_text = chat_end_of_text,
                                     .keep = chat_keep,
                                     .report = chat_report,
                                     .converse = chat_converse};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "chat",
    .help = "conversations for language models, as JSON lines: answers are learnt, rows are packed",
    .params_size = sizeof(chat_params),
    .params = table,
    .create = chat_create,
    .destroy = chat_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-chat", "0.1", plugins)
