/* Reads tokenizers from GGUF files. See tokenizer.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "brim/host.h"
#include "parts.h"

bool tokenizer_is_in_gguf(const char *path)
{
  const size_t length = strlen(path);
  return length > 5 && strcasecmp(path + length - 5, ".gguf") == 0;
}

/* Converts the metadata to a tokenizer.json, which is then read like any other. */
brim_status tokenizer_open_gguf(const char *path, tokenizer **out)
{
  char *text = NULL, *config = NULL;
  BRIM_TRY(brim_gguf_tokenizer(path, &text, &config));
  const tokenizer_source from = {path, text, strlen(text)}, about = {path, config, strlen(config)};
  const brim_status status = tokenizer_build(&from, NULL, &about, out);
  free(text);
  free(config);
  return status;
}
