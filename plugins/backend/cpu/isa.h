/* The instruction sets for which the vector code is compiled: three on every machine, from the shortest vectors to the
 * longest. For each family of kernels, each set has a table of functions; the table's name ends with the name of the
 * set. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#if defined(__x86_64__)
#define CPU_OF_ISAS(prefix, name) prefix name##_v2, prefix name##_v3, prefix name##_v4
#define CPU_ISA_NAMES "v2|v3|v4"
#elif defined(__aarch64__)
#define CPU_OF_ISAS(prefix, name) prefix name##_neon, prefix name##_sve256, prefix name##_sve512
#define CPU_ISA_NAMES "neon|sve256|sve512"
#else
#error "name this machine's instruction sets"
#endif

#endif
