/* Formulas (brim/formula.h) along a run of values, for each instruction set. */
#ifndef CPU_SIMD_FORMULA_H
#define CPU_SIMD_FORMULA_H
#include "brim/formula.h"
#include "simd.h"

enum { CPU_FORMULA_BLOCK = 512, CPU_FORMULA_LANES = 16 /* of the longest vectors */ };

/* The places that lines of a plan read and write: registers, then inputs, outputs and uniforms, so that values read or
 * written only once need no copy. */
enum {
  CPU_PLACE_INPUT = BRIM_FORMULA_REGISTERS_MAX,
  CPU_PLACE_OUTPUT = CPU_PLACE_INPUT + BRIM_FORMULA_OPERANDS_MAX,
  CPU_PLACE_UNIFORM = CPU_PLACE_OUTPUT + BRIM_FORMULA_OPERANDS_MAX,
  CPU_PLACES = CPU_PLACE_UNIFORM + BRIM_FORMULA_UNIFORMS_MAX
};
typedef struct cpu_formula {
  uint32_t lines;
  brim_formula_line line[BRIM_FORMULA_LINES_MAX]; /* whose operands and result are places */
  uint32_t is_read;                               /* inputs, as bits */
} cpu_formula;

/* Each place's values, and the mask of an index into them: 0 for CPU_FORMULA_LANES copies of the same value. */
typedef struct cpu_formula_places {
  float *at[CPU_PLACES];
  int64_t mask[CPU_PLACES];
} cpu_formula_places;

/* Runs all lines for `count` values, in whole vectors. */
typedef void (*cpu_formula_run)(const cpu_formula *f, const cpu_formula_places *p, int64_t count);
extern const cpu_formula_run CPU_OF_ISAS(, cpu_formula);
#endif
