/* Fuzzes the check of a shared object before the dynamic linker gets it: a refusal has a reason, and an accepted file
 * begins like a shared object of this machine. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/memory_file.h"
#include "plugin/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  char name[32];
  const int fd = memory_file(bytes, size, name);
  const brim_status status = brim_elf_check(name);
  close(fd);
  if (status != BRIM_OK) {
    if (status != BRIM_ELOAD || brim_error_text()[0] == '\0') abort();
    return 0;
  }
  Elf64_Ehdr header;
  if (size < sizeof header) abort();
  memcpy(&header, bytes, sizeof header);
  if (header.e_type != ET_DYN || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) abort();
  return 0;
}
