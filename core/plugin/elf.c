/* Reads a file's ELF headers and compares them with the file and with this machine.
 *
 * dlopen rejects such files too, but with messages such as "invalid ELF header" or "file too short". If the segments of
 * a truncated file lie beyond its end, SIGBUS kills the process. */
#include "plugin/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HOST_ORDER ELFDATA2LSB
#else
#define HOST_ORDER ELFDATA2MSB
#endif

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#elif defined(__powerpc64__)
#define HOST_MACHINE EM_PPC64
#elif defined(__riscv)
#define HOST_MACHINE EM_RISCV
#else
#error "add this machine's EM_ constant"
#endif

static const struct {
  uint16_t machine;
  const char *name;
} machines[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "AArch64"}, {EM_386, "x86 (32-bit)"}, {EM_ARM, "ARM (32-bit)"},
                {EM_PPC64, "POWER"},   {EM_RISCV, "RISC-V"},    {EM_S390, "IBM Z"},       {EM_CUDA, "NVIDIA GPU"}};

static const char *machine_name(uint16_t machine)
{
  for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
    if (machines[i].machine == machine) return machines[i].name;
  return "another machine";
}

static brim_status check_header(const Elf64_Ehdr *header)
{
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != HOST_ORDER)
    return brim_fail(BRIM_ELOAD, "is built for another machine (%s, %s-endian); this brim is for %s",
                     header->e_ident[EI_CLASS] == ELFCLASS64 ? "64-bit" : "32-bit",
                     header->e_ident[EI_DATA] == ELFDATA2LSB ? "little" : "big", machine_name(HOST_MACHINE));
  if (header->e_machine != HOST_MACHINE)
    return brim_fail(BRIM_ELOAD, "is built for another machine (%s, ELF machine %d); this brim is for %s",
                     machine_name(header->e_machine), header->e_machine, machine_name(HOST_MACHINE));
  if (header->e_type == ET_REL)
    return brim_fail(BRIM_ELOAD, "is an object file, not a shared object: link it with -shared");
  if (header->e_type != ET_DYN)
    return brim_fail(BRIM_ELOAD, "is an ELF file but not a shared object (type %d)", header->e_type);
  return BRIM_OK;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns the file size that the segments and the section table require; 0 if they cannot be read. */
static uint64_t promised_bytes(int fd, const Elf64_Ehdr *header)
{
  uint64_t end = header->e_shoff ? add_saturated(header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize) : 0;
  for (unsigned i = 0; i < header->e_phnum; i++) {
    Elf64_Phdr segment;
    const off_t at = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize); /* if negative, pread fails */
    if (pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment) return 0;
    const uint64_t segment_end = add_saturated(segment.p_offset, segment.p_filesz);
    if (segment_end > end) end = segment_end;
  }
  return end;
}

static brim_status check_open_file(int fd)
{
  struct stat info;
  if (fstat(fd, &info) != 0) return brim_fail(BRIM_ELOAD, "cannot be read: %s", strerror(errno));
  if (!S_ISREG(info.st_mode)) return brim_fail(BRIM_ELOAD, "is not a regular file");
  if (info.st_size == 0) return brim_fail(BRIM_ELOAD, "is empty");
  const uint64_t bytes = (uint64_t)info.st_size;
  Elf64_Ehdr header = {{0}};
  if (pread(fd, &header, sizeof header, 0) < 0) return brim_fail(BRIM_ELOAD, "cannot be read: %s", strerror(errno));
  if (memcmp(header.e_ident, ELFMAG, bytes < SELFMAG ? bytes : SELFMAG) != 0)
    return brim_fail(BRIM_ELOAD, "is not a shared object: it does not start with an ELF header");
  if (bytes < sizeof header)
    return brim_fail(BRIM_ELOAD, "is truncated: it has %" PRIu64 " bytes, its ELF header alone takes %zu", bytes,
                     sizeof header);
  BRIM_TRY(check_header(&header));
  const uint64_t promised = promised_bytes(fd, &header);
  if (promised == 0)
    return brim_fail(BRIM_ELOAD, "is truncated: it has %" PRIu64 " bytes, which do not hold its list of segments",
                     bytes);
  if (promised > bytes)
    return brim_fail(BRIM_ELOAD, "is truncated: it has %" PRIu64 " of %" PRIu64 " bytes", bytes, promised);
  return BRIM_OK;
}

brim_status brim_elf_check(const char *file)
{
  const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* open() on a pipe must not block */
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot be opened: %s", strerror(errno));
  const brim_status status = check_open_file(fd);
  close(fd);
  return status;
}
