/* Replaces formula_code.cpp if xbyak is missing. */
#include "formula_code.h"

void *cpu_formula_code_make(const brim_formula *f, const brim_node *node, int32_t isa, cpu_formula_code *entry)
{
  (void)f, (void)node, (void)isa, (void)entry;
  return NULL;
}

void cpu_formula_code_free(void *code)
{
  (void)code;
}
