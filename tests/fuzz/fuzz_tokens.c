/* Fuzzes files of tokens: every file is refused with an error, or every token and every window of it can be read. The
 * first byte selects the format of raw tokens, the second the windows. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../plugins/dataset/tokens/windows.h"

#define INPUT_BYTES_MAX ((size_t)1 << 20)
#define VOCABULARY 50257

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_tokens: %s\n", what);
  abort();
}

static void read_windows(token_file *file, int64_t context, int64_t stride)
{
  int32_t tokens[16], answers[16];
  const int64_t beyond = token_file_find_beyond(file, VOCABULARY), count = file->count;
  windows w = {.context = context, .stride = stride, .vocabulary = VOCABULARY};
  check(windows_add(&w, file, "input") == BRIM_OK, "no window could be made");
  check((windows_check(&w, "the tokens") == BRIM_OK) == (count > context), "a file of enough tokens has no windows");
  check((windows_scan(&w) == BRIM_OK) == (beyond < 0), "a token beyond the vocabulary was not found");
  for (int64_t i = 0; i < w.count; i++) {
    const brim_status status = windows_read(&w, i, tokens, answers);
    check(status == BRIM_OK || (beyond >= 0 && brim_error_text()[0]), "a window could not be read");
    for (int64_t k = 0; status == BRIM_OK && k < context; k++)
      check(tokens[k] >= 0 && tokens[k] < VOCABULARY && answers[k] >= 0 && answers[k] < VOCABULARY,
            "a token beyond the vocabulary was read");
  }
  windows_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  token_file file;
  if (size < 2 || size > INPUT_BYTES_MAX) return 0;
  const int fd = memfd_create("fuzz_tokens", MFD_CLOEXEC);
  check(fd >= 0 && write(fd, data + 2, size - 2) == (ssize_t)(size - 2), "no file in memory");
  const brim_status status = token_file_map(fd, "input", (enum token_format)(data[0] % 4), &file);
  close(fd);
  if (status == BRIM_OK)
    read_windows(&file, 1 + data[1] % 16, 1 + data[1] / 16);
  else
    check(brim_error_text()[0] && !file.map, "refused without a text, or something is left");
  return 0;
}
