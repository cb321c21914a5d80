/* Names the cpu backend's instruction sets, and tells which of them this processor has. */
#ifndef TESTS_CPU_ISA_H
#define TESTS_CPU_ISA_H
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)

static const char *const isas[] = {"v2", "v3", "v4"};

static inline bool has_isa(const char *isa)
{
  if (strcmp(isa, "v2") == 0) return __builtin_cpu_supports("sse4.2");
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  return strcmp(isa, "v3") == 0 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                                    __builtin_cpu_supports("avx512vl"));
}

#else

#include <sys/auxv.h>
#include <sys/prctl.h>

static const char *const isas[] = {"neon", "sve256", "sve512"};

static inline bool has_isa(const char *isa)
{
  if (strcmp(isa, "neon") == 0) return true;
  if (!(getauxval(AT_HWCAP) & HWCAP_SVE)) return false;
  return (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == (strcmp(isa, "sve256") == 0 ? 32 : 64);
}

#endif
#endif
