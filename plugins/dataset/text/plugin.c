/* Plain text for language models: UTF-8 files, as bytes or as tokens of a tokenizer.
 *
 * The last part of the text is the test split, unless the test split has its own files. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tokens/splits.h"
#include "../tokens/windows.h"
#include "brim/brim.h"
#include "chat_model.h"
#include "text_tokens.h"

#define BYTES_VOCABULARY 256

typedef struct text_params {
  const char *path, *files, *validation, *test, *tokenizer, *cache, *template;
  int64_t context, stride;
  double test_fraction;
  int32_t tokens, client;
  bool documents;
} text_params;

enum { TOKENS_BYTES, TOKENS_GPT2, TOKENS_HF };
enum { CLIENT_NONE, CLIENT_FILE };

static const brim_param table[] = {
    BRIM_PARAM(PATH, text_params, path, NULL, NULL, "training text: a file, or a folder of files"),
    BRIM_PARAM(STR, text_params, files, "*.txt", NULL, "pattern of the names of files to read from a folder"),
    BRIM_PARAM(PATH, text_params, validation, "", NULL,
               "validation text: a file or folder; empty: no validation split"),
    BRIM_PARAM(PATH, text_params, test, "", NULL,
               "test text: a file or folder; empty: the end of the training text (test_fraction)"),
    BRIM_PARAM(F64, text_params, test_fraction, "0.1", "[0,1)",
               "share at the end of the training text that becomes the test split if test is empty; 0: no test split"),
    BRIM_PARAM(
        ENUM, text_params, tokens, "bytes", "bytes|gpt2|hf",
        "tokens: bytes (256 tokens); gpt2: GPT-2's byte-pair encoding; hf: the tokenizer of a model from Hugging "
        "Face, with the same ids"),
    BRIM_PARAM(PATH, text_params, tokenizer, "", NULL,
               "for tokens=gpt2 and tokens=hf: a tokenizer.json, or a folder with one, with vocab.json and merges.txt, "
               "or with encoder.json and vocab.bpe; for tokens=hf also a GGUF file"),
    BRIM_PARAM(PATH, text_params, cache, "", NULL,
               "folder of cached tokens for tokens=gpt2 and tokens=hf; empty: ~/.cache/brim"),
    BRIM_PARAM(I64, text_params, context, "256", "[1,16777216]", "tokens in a sample"),
    BRIM_PARAM(I64, text_params, stride, "0", "[0,16777216]",
               "tokens from the start of a sample to that of the next; 0: context, so that samples do not overlap"),
    BRIM_PARAM(BOOL, text_params, documents, "false", NULL,
               "for tokens=gpt2 and tokens=hf: each end of text (brim puts one between files) begins a document, and "
               "tokens see no other document of their sample"),
    BRIM_PARAM(ENUM, text_params, client, "none", "none|file",
               "clients of a federation: none; file: each file is a client, samples do not cross files, and the test "
               "split is the end of each file"),
    BRIM_PARAM(PATH, text_params, template, "", NULL,
               "for tokens=hf and brim generate --chat: a chat template, a file or one that comes with brim "
               "(" TEMPLATE_SHIPPED "); empty: the model's own"),
    BRIM_PARAMS_END};

static const char *const split_options[SPLITS] = {"dataset.path", "dataset.validation", "dataset.test"};
static const char *const split_whats[SPLITS] = {"the training tokens", "the validation tokens", "the test tokens"};

typedef struct text_dataset {
  const text_params *params;
  tokenizer *vocabulary;   /* NULL if bytes are tokens */
  token_file text[SPLITS]; /* all tokens of a split's path; unused if the split is the end of another split's text */
  windows split[SPLITS];   /* windows of text; part_count is 0 if the split is not open */
  char byte[BYTES_VOCABULARY];
  char kept[TOKENIZER_IDENTITY_ROOM];
  chat_model chat; /* opened when needed */
} text_dataset;

/* Returns whether the split is the end of the training text. */
static bool is_end(const text_params *p, int split)
{
  return split == TEST && !p->test[0];
}

static const char *path_of(const text_params *p, int split)
{
  if (split == VALIDATION) return p->validation;
  return split == TRAIN || is_end(p, split) ? p->path : p->test;
}

static brim_status split_find(const text_params *p, const char *name, int *out)
{
  *out = split_by_name(name);
  if (*out < SPLITS && path_of(p, *out)[0] && !(is_end(p, *out) && p->test_fraction == 0)) return BRIM_OK;
  return split_missing(name);
}

/* Computes which of the text's tokens belong to the split: [*first, *end). */
static void cut(const text_params *p, int split, int64_t count, int64_t *first, int64_t *end)
{
  const bool shared = !p->test[0] && split != VALIDATION;
  const int64_t test = shared ? llround((double)count * p->test_fraction) : 0;
  *first = is_end(p, split) ? count - test : 0;
  *end = split == TRAIN ? count - test : count;
}

static windows empty_windows(const text_dataset *d)
{
  const text_params *p = d->params;
  return (windows){.context = p->context,
                   .stride = p->stride ? p->stride : p->context,
                   .vocabulary = d->vocabulary ? tokenizer_rows(d->vocabulary) : BYTES_VOCABULARY,
                   .documents = p->documents,
                   .separator = d->vocabulary ? tokenizer_end_of_text(d->vocabulary) : -1};
}

/* With GPT-2's tokens, "<|endoftext|>" in a text is encoded as ordinary text. Special tokens of other models are
 * encoded as themselves. */
static unsigned encode_flags(const text_dataset *d)
{
  return d->params->tokens == TOKENS_HF ? TOKENIZER_TEMPLATE : TOKENIZER_PLAIN;
}

static text_source source_of(const text_dataset *d, const text_files *files)
{
  return (text_source){files, d->vocabulary, encode_flags(d), d->params->cache};
}

/* Returns ELOAD if there are not enough tokens for a sample. */
static brim_status check_count(const text_dataset *d, int split, const text_files *files, int64_t tokens)
{
  const windows w = empty_windows(d);
  if (windows_in(&w, tokens) > 0) return BRIM_OK;
  const brim_status status = windows_fail_few(&w, split_whats[split], files->name[0], files->count > 1, tokens);
  if (!is_end(d->params, split)) return status;
  return brim_fail_add(status, "they are the end of the text: dataset.test_fraction is %g; 0 disables the test split",
                       d->params->test_fraction);
}

/* Adds windows over the split's part of all tokens. The dataset owns the tokens. */
static brim_status add_part(const text_dataset *d, int split, const text_files *files, const token_file *all,
                            windows *w)
{
  int64_t first, end;
  cut(d->params, split, all->count, &first, &end);
  token_file part = {.tokens = all->tokens + first * all->width, .count = end - first, .width = all->width};
  *w = empty_windows(d);
  BRIM_TRY(check_count(d, split, files, part.count));
  return windows_add(w, &part, files->name[0]);
}

/* Finds the end of file k among all tokens. The file begins at token `first`. */
static brim_status find_end(const text_dataset *d, const text_files *files, size_t k, const token_file *all,
                            int64_t first, int64_t *end)
{
  const int64_t separator = d->vocabulary ? tokenizer_end_of_text(d->vocabulary) : -1;
  *end = first;
  if (!d->vocabulary)
    *end = first + (int64_t)files->size[k];
  else if (k + 1 == files->count)
    *end = all->count;
  else
    while (*end < all->count && (int64_t)token_file_at(all, *end) != separator) ++*end;
  if (*end < all->count || (k + 1 == files->count && *end == all->count)) return BRIM_OK;
  return brim_fail(
      BRIM_ELOAD, "the end of '%s' is beyond the last of %" PRId64 " tokens: a file may have changed while it was read",
      files->name[k], all->count);
}

/* Returns ELOAD if a file itself contains the token that separates files. */
static brim_status check_ends(const text_dataset *d, const text_files *files, const token_file *all)
{
  size_t ends = 0;
  if (!d->vocabulary || d->params->tokens != TOKENS_HF) return BRIM_OK;
  for (int64_t i = 0; i < all->count; i++)
    ends += (int64_t)token_file_at(all, i) == tokenizer_end_of_text(d->vocabulary);
  if (ends + 1 == files->count) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "dataset.client=file divides the tokens into %zu files at the end-of-text tokens, but there are "
                   "%zu of these: a file contains one, or the tokenizer adds them",
                   files->count, ends);
}

/* Adds one part for each file. */
static brim_status add_files(const text_dataset *d, int split, const text_files *files, const token_file *all,
                             windows *w)
{
  int64_t at = 0;
  *w = empty_windows(d); /* the caller frees it on failure */
  BRIM_TRY(check_ends(d, files, all));
  if (d->vocabulary && tokenizer_end_of_text(d->vocabulary) < 0 && files->count > 1)
    return brim_fail(BRIM_ECONFIG, "dataset.client=file needs an end-of-text token between files, but the "
                                   "vocabulary of dataset.tokenizer has none");
  for (size_t k = 0; k < files->count; k++) {
    int64_t end, from, to;
    BRIM_TRY(find_end(d, files, k, all, at, &end));
    cut(d->params, split, end - at, &from, &to);
    token_file part = {.tokens = all->tokens + (at + from) * all->width, .count = to - from, .width = all->width};
    if (split == TRAIN && windows_in(w, part.count) == 0)
      brim_log(BRIM_LOG_WARN, "'%s' is not a client: %" PRId64 " tokens are too few for a sample of %" PRId64,
               files->name[k], part.count, w->context + 1);
    BRIM_TRY(windows_add(w, &part, files->name[k]));
    at = end + (d->vocabulary != NULL); /* skips the end of text before the next file */
  }
  return windows_check(w, split_whats[split]);
}

/* ---- the plugin ---- */

static brim_status open_vocabulary(text_dataset *d)
{
  const text_params *p = d->params;
  const bool gpt2 = p->tokens == TOKENS_GPT2;
  if (p->tokens == TOKENS_BYTES && p->tokenizer[0])
    return brim_fail(BRIM_ECONFIG, "dataset.tokenizer is for dataset.tokens=gpt2 and dataset.tokens=hf, but tokens are "
                                   "bytes: set dataset.tokens=hf too, or remove dataset.tokenizer");
  if (p->tokens == TOKENS_BYTES) return BRIM_OK;
  if (!p->tokenizer[0])
    return brim_fail(BRIM_ECONFIG,
                     gpt2 ? "dataset.tokens=gpt2 needs dataset.tokenizer: the folder of GPT-2's vocab.json and "
                            "merges.txt\nthey are at https://huggingface.co/openai-community/gpt2"
                          : "dataset.tokens=hf needs dataset.tokenizer: the folder of a model with its tokenizer.json");
  BRIM_TRY(tokenizer_open(p->tokenizer, !gpt2, &d->vocabulary));
  if (!gpt2 || tokenizer_is_gpt2(d->vocabulary)) return BRIM_OK;
  return brim_fail(
      BRIM_ECONFIG,
      "dataset.tokenizer='%s' is not GPT-2's byte-pair encoding\nset dataset.tokens=hf for other tokenizers",
      p->tokenizer);
}

static brim_status check_documents(const text_dataset *d)
{
  if (!d->params->documents || (d->vocabulary && tokenizer_end_of_text(d->vocabulary) >= 0)) return BRIM_OK;
  return brim_fail(
      BRIM_ECONFIG,
      d->vocabulary
          ? "dataset.documents needs a token that ends a text, but the vocabulary of dataset.tokenizer has none"
          : "dataset.documents needs a token that ends a text, which bytes lack: set dataset.tokens=gpt2 or "
            "dataset.tokens=hf");
}

static void text_destroy(void *self)
{
  text_dataset *d = self;
  if (!d) return;
  for (int i = 0; i < SPLITS; i++) {
    windows_free(&d->split[i]);
    token_file_close(&d->text[i]);
  }
  tokenizer_free(d->vocabulary);
  chat_model_close(&d->chat);
  free(d);
}

static brim_status text_create(const void *params, void **self)
{
  text_dataset *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  for (int i = 0; i < BYTES_VOCABULARY; i++) d->byte[i] = (char)i;
  brim_status status = open_vocabulary(d);
  if (status == BRIM_OK) status = check_documents(d);
  if (status == BRIM_OK)
    *self = d;
  else
    text_destroy(d);
  return status;
}

static brim_status text_open(void *self, const char *split)
{
  text_dataset *d = self;
  windows w;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  if (d->split[which].part_count > 0) return BRIM_OK;
  text_files files;
  token_file *all = &d->text[is_end(d->params, which) ? TRAIN : which];
  BRIM_TRY(text_files_find(path_of(d->params, which), d->params->files, split_options[which], &files));
  const text_source source = source_of(d, &files);
  brim_status status = all->map ? BRIM_OK : text_tokens_open(&source, all);
  if (status == BRIM_OK && d->params->client == CLIENT_FILE) {
    status = add_files(d, which, &files, all, &w);
    if (status != BRIM_OK) windows_free(&w);
  } else if (status == BRIM_OK) {
    status = add_part(d, which, &files, all, &w);
  }
  text_files_free(&files);
  BRIM_TRY(status);
  d->split[which] = w;
  return BRIM_OK;
}

typedef struct text_size {
  int64_t tokens, samples;
  bool mapped; /* the tokens are mapped from a file */
} text_size;

/* Counts the windows if each file is a client. */
static void count_files(const text_dataset *d, int split, const text_files *files, text_size *out)
{
  const windows empty = empty_windows(d);
  for (size_t k = 0; k < files->count; k++) {
    int64_t first, end;
    cut(d->params, split, (int64_t)files->size[k], &first, &end);
    out->tokens += end - first;
    out->samples += windows_in(&empty, end - first);
  }
}

/* Measures a split that is not open. Returns EINVAL if that would require reading the text. */
static brim_status measure_text(const text_dataset *d, int split, text_size *out)
{
  text_files files;
  const windows empty = empty_windows(d);
  const bool by_file = d->params->client == CLIENT_FILE;
  int64_t count = 0, first = 0, end = 0;
  *out = (text_size){0};
  BRIM_TRY(text_files_find(path_of(d->params, split), d->params->files, split_options[split], &files));
  const text_source source = source_of(d, &files);
  const bool known = text_tokens_count(&source, &count) && !(by_file && d->vocabulary);
  out->mapped = d->vocabulary || files.count == 1;
  brim_status status = BRIM_OK;
  if (!known) {
    status = brim_fail(BRIM_EINVAL, "the text must be tokenized first");
  } else if (by_file) {
    count_files(d, split, &files, out);
    if (out->samples == 0) status = check_count(d, split, &files, 0);
  } else {
    cut(d->params, split, count, &first, &end);
    out->tokens = end - first;
    out->samples = windows_in(&empty, out->tokens);
    status = check_count(d, split, &files, out->tokens);
  }
  text_files_free(&files);
  return status;
}

static uint64_t bytes_of(const text_dataset *d, int64_t tokens)
{
  return (uint64_t)tokens * (uint64_t)text_token_width(d->vocabulary);
}

static brim_status text_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const text_dataset *d = self;
  const windows empty = empty_windows(d);
  int which = 0;
  text_size size;
  BRIM_TRY(split_find(d->params, split, &which));
  *out = (brim_dataset_info){.sample = {1, {d->params->context}},
                             .dtype = BRIM_DTYPE_I32,
                             .classes = empty.vocabulary,
                             .task = BRIM_TASK_TOKENS,
                             .documents = d->params->documents,
                             .count = d->split[which].count};
  if (d->split[which].part_count > 0) return BRIM_OK;
  BRIM_TRY(measure_text(d, which, &size));
  out->count = size.samples;
  if (size.mapped) out->mapped_bytes = bytes_of(d, size.tokens);
  return BRIM_OK;
}

/* Counts mapped or made tokens. Tokens that several splits share are counted once. */
static brim_status text_host_bytes(const void *self, const char *split, uint64_t *out)
{
  const text_dataset *d = self;
  int which = 0;
  text_size size;
  BRIM_TRY(split_find(d->params, split, &which));
  *out = d->split[which].bytes;
  if (d->split[which].part_count > 0) return BRIM_OK;
  BRIM_TRY(measure_text(d, which, &size));
  *out = bytes_of(d, size.tokens);
  return BRIM_OK;
}

static brim_status text_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const text_dataset *d = self;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  if (d->split[which].part_count == 0) return brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
  return windows_read(&d->split[which], index, values, label);
}

static brim_status text_client(const void *self, const char *split, int64_t index, int64_t *out)
{
  const text_dataset *d = self;
  int which = 0;
  if (d->params->client == CLIENT_NONE)
    return brim_fail(BRIM_ECONFIG, "partition=natural needs the client of each sample, but dataset.client=none\n"
                                   "set dataset.client=file to make each file a client");
  BRIM_TRY(split_find(d->params, split, &which));
  *out = windows_part_of(&d->split[which], index);
  return *out >= 0 ? BRIM_OK : brim_fail(BRIM_EINVAL, "split '%s' has no sample %" PRId64, split, index);
}

/* ---- text of tokens ---- */

/* Adds no end of text, because the model continues the text. */
static brim_status text_encode(const void *self, const char *text, size_t bytes, int32_t *tokens, size_t *count)
{
  const text_dataset *d = self;
  if (d->vocabulary)
    return tokenizer_encode_into(d->vocabulary, text, bytes, encode_flags(d) & ~TOKENIZER_END, tokens, count);
  for (size_t i = 0; i < bytes; i++) tokens[i] = (unsigned char)text[i];
  *count = bytes;
  return BRIM_OK;
}

static brim_status text_decode(const void *self, int32_t token, const char **text, size_t *bytes)
{
  const text_dataset *d = self;
  if (d->vocabulary) {
    *text = tokenizer_piece(d->vocabulary, token, bytes);
    return BRIM_OK;
  }
  if (token < 0 || token >= BYTES_VOCABULARY) return brim_fail(BRIM_EINVAL, "token %d is not a byte", (int)token);
  *text = &d->byte[token];
  *bytes = 1;
  return BRIM_OK;
}

static brim_status text_end_of_text(const void *self, int32_t *out)
{
  const text_dataset *d = self;
  *out = d->vocabulary ? tokenizer_end_of_text(d->vocabulary) : -1;
  return BRIM_OK;
}

static brim_status text_converse(void *self, const char *json, brim_conversation *out)
{
  text_dataset *d = self;
  if (d->params->tokens != TOKENS_HF)
    return brim_fail(BRIM_ECONFIG, "conversations need the tokenizer of a model: dataset.tokens=hf");
  if (!d->chat.vocabulary) BRIM_TRY(chat_model_open(d->params->tokenizer, d->params->template, &d->chat));
  return chat_model_converse(&d->chat, json, out);
}

/* Saves a hash of the vocabulary, because in another vocabulary the same ids mean other texts. If bytes are tokens,
 * there is nothing to save. */
static brim_status text_keep(void *self, const char **json)
{
  text_dataset *d = self;
  *json = NULL;
  if (!d->vocabulary) return BRIM_OK;
  *json = tokenizer_identity(tokenizer_rows(d->vocabulary), tokenizer_hash(d->vocabulary), d->kept);
  return BRIM_OK;
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = text_open,
                                     .describe = text_describe,
                                     .read = text_read,
                                     .host_bytes = text_host_bytes,
                                     .validation_split = "validation",
                                     .encode = text_encode,
                                     .decode = text_decode,
                                     .end_of_text = text_end_of_text,
                                     .keep = text_keep,
                                     .client = text_client,
                                     .converse = text_converse};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "text",
    .help = "plain text for language models, as bytes or as tokens of a tokenizer",
    .params_size = sizeof(text_params),
    .params = table,
    .create = text_create,
    .destroy = text_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-text", "0.1", plugins)
