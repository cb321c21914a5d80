/* Formulas (brim/formula.h) over a range of values, for each instruction set. */
#ifndef CPU_SIMD_FORMULA_H
#define CPU_SIMD_FORMULA_H
#include "brim/formula.h"
#include "simd.h"

enum { CPU_FORMULA_BLOCK = 512, CPU_FORMULA_LANES = 16 /* CPU_FORMULA_LANES: floats of the longest vectors */ };

/* The places that a plan's lines read and write: registers, then inputs, outputs and uniforms. So values that are read
 * or written only once need no copy. */
enum {
  CPU_PLACE_INPUT = BRIM_FORMULA_REGISTERS_MAX,
  CPU_PLACE_OUTPUT = CPU_PLACE_INPUT + BRIM_FORMULA_OPERANDS_MAX,
  CPU_PLACE_UNIFORM = CPU_PLACE_OUTPUT + BRIM_FORMULA_OPERANDS_MAX,
  CPU_PLACES = CPU_PLACE_UNIFORM + BRIM_FORMULA_UNIFORMS_MAX
};
typedef struct cpu_formula {
  uint32_t lines;
  brim_formula_line line[BRIM_FORMULA_LINES_MAX]; /* operands and results are places */
  uint32_t is_read;                               /* one bit for each input that a line reads */
} cpu_formula;

/* The address of each place's values, and a mask for the index into them: 0 if a place holds CPU_FORMULA_LANES copies
 * of one value. */
typedef struct cpu_formula_places {
  float *at[CPU_PLACES];
  int64_t mask[CPU_PLACES];
} cpu_formula_places;

/* Runs all lines for `count` values, in whole vectors. */
typedef void (*cpu_formula_run)(const cpu_formula *f, const cpu_formula_places *p, int64_t count);
extern const cpu_formula_run CPU_OF_ISAS(, cpu_formula);
#endif
