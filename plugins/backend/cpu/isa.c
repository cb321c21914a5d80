/* Chooses among the instruction sets of isa.h when an instance is created: the best one that this processor has, unless
 * the user names one. */
#include "isa.h"

#include "cpu.h"

static const cpu_simd *const tables[] = {CPU_OF_ISAS(&, cpu_simd)};

#if defined(__x86_64__)

enum { V2, V3, V4 };

/* Returns the best of the three sets that this CPU can run, or -1. */
static int best_isa(void)
{
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
    return __builtin_cpu_supports("sse4.2") ? V2 : -1;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return V3;
  return V4;
}

/* Returns the set that oneDNN uses: the CPU's best, or the one in ONEDNN_MAX_CPU_ISA if that is smaller. */
static int library_isa(void)
{
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return V4;
  return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? V3 : V2;
}

/* Returns the function for products in bfloat16: with AMX or AVX512_BF16, if the processor has it and
 * $ONEDNN_MAX_CPU_ISA allows it; else NULL. */
static cpu_gemm16_block choose_gemm16(void)
{
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  cpu_gemm16_block block = NULL;
  if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) block = cpu_gemm16_tiles();
  if (!block && (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) block = cpu_gemm16_vectors();
  return block;
}

/* oneDNN accepts a limit only once per process, before its first use; an earlier instance may already have used it. */
brim_status cpu_isa_choose(cpu_backend *b)
{
  static const dnnl_cpu_isa_t limit[] = {
      [V2] = dnnl_cpu_isa_sse41, [V3] = dnnl_cpu_isa_avx2, [V4] = dnnl_cpu_isa_avx512_core};
  const int best = best_isa(), wanted = b->params->isa - 1;
  if (best < 0)
    return brim_fail(BRIM_ENOTSUP, "this processor has no SSE4.2, which the cpu backend needs\nuse backend=reference");
  if (wanted > best)
    return brim_fail(BRIM_ENOTSUP, "backend.isa=%s: this processor has only %s", tables[wanted]->name,
                     tables[best]->name);
  if (wanted >= 0 && dnnl_set_max_cpu_isa(limit[wanted]) != dnnl_success)
    brim_log(BRIM_LOG_DEBUG,
             "oneDNN is in use already, so it keeps its instruction set instead of that of backend.isa");
  const int library = library_isa();
  b->isa = wanted >= 0 ? wanted : library < best ? library : best;
  b->simd = tables[b->isa];
  b->block = library == V4 ? 16 : 8;
  b->gemm16 = wanted < 0 && b->isa == V4 ? choose_gemm16() : NULL;
  return BRIM_OK;
}

#else

#include <sys/auxv.h>
#include <sys/prctl.h>

enum { NEON, SVE256, SVE512 };

/* Returns the bits of a vector register: 128, or more with SVE. The operating system sets the SVE length for each
 * process, up to the processor's maximum; threads inherit it. */
static int vector_bits(void)
{
  const int length = getauxval(AT_HWCAP) & HWCAP_SVE ? prctl(PR_SVE_GET_VL) : -1;
  return length < 0 ? 128 : 8 * (length & PR_SVE_VL_LEN_MASK);
}

/* Code for SVE is compiled for one vector length and runs with no other. With other lengths the backend uses NEON. */
brim_status cpu_isa_choose(cpu_backend *b)
{
  const int bits = vector_bits(), best = bits == 512 ? SVE512 : bits == 256 ? SVE256 : NEON;
  const int wanted = b->params->isa - 1;
  if (wanted > NEON && wanted != best)
    return brim_fail(BRIM_ENOTSUP, "backend.isa=%s: this process has vectors of %d bits, so only %s%s",
                     tables[wanted]->name, bits, best == NEON ? "" : "neon and ", tables[best]->name);
  b->isa = wanted >= 0 ? wanted : best;
  b->simd = tables[b->isa];
  b->block = best == SVE512 ? 16 : 8; /* oneDNN compiles convolutions for SVE with 512 bits only */
  return BRIM_OK;
}

#endif
