/* Machine code for formulas, on processors with the necessary instructions. */
#ifndef CPU_FORMULA_CODE_H
#define CPU_FORMULA_CODE_H
#include "brim/ops.h"
#include "simd_formula.h"

/* at: pointers to BRIM_FORMULA_OPERANDS_MAX inputs, then to as many outputs. same: CPU_FORMULA_LANES floats for each
 * place that has the same value for all elements. bytes: the size of each input and output, a positive multiple of a
 * whole vector. */
typedef void (*cpu_formula_code)(float *const *at, const float *same, int64_t bytes);
/* [plan] Returns machine code for a node's formula and sets its entry. The caller frees the code. Returns NULL if
 * simd_formula.c must run the formula. */
void *cpu_formula_code_make(const brim_formula *f, const brim_node *node, int32_t isa, cpu_formula_code *entry);
void cpu_formula_code_free(void *code); /* no-op for NULL */
#endif
