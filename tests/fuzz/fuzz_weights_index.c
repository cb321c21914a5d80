/* Fuzzes the reader of index files: an accepted index names only files next to it, and each tensor once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/weights_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  brim_arena arena = {0};
  brim_weights_index index;
  if (brim_weights_index_parse(&arena, (const char *)bytes, size, "input", &index) != BRIM_OK) {
    if (brim_error_text()[0] == '\0') abort();
    brim_arena_release(&arena);
    return 0;
  }
  if (index.count == 0 || index.file_count == 0 || index.file_count > BRIM_WEIGHTS_FILES_MAX) abort();
  for (size_t i = 0; i < index.count; i++) {
    if (index.file[i] >= index.file_count) abort();
    if (i > 0 && strcmp(index.name[i - 1], index.name[i]) >= 0) abort();
  }
  for (size_t i = 0; i < index.file_count; i++) {
    const char *name = index.file_name[i];
    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) abort();
    if (i > 0 && strcmp(index.file_name[i - 1], name) >= 0) abort();
  }
  brim_arena_release(&arena);
  return 0;
}
