/* Machine code for formulas, generated when a plan is made: one loop over vectors whose values stay in registers from
 * the first line of the formula to the last, like compiled code. It uses the same operations in the same order as
 * simd_formula.c, so the bits are the same; formulas with longer functions (exp, log, ...) stay there. */
#include <xbyak/xbyak.h>

extern "C" {
#include "formula_code.h"
}

namespace
{

using Xbyak::Address;
using Xbyak::Reg64;
using Xbyak::Xmm;

enum { INPUTS = BRIM_FORMULA_OPERANDS_MAX, POINTERS_MAX = 11, CODE_BYTES = 16384 };

/* For vectors of 16 floats (x86-64-v4) or 8 (v3). */
class Code : Xbyak::CodeGenerator
{
public:
  Code(const brim_formula *f, const brim_node *n, bool wide)
      : CodeGenerator(CODE_BYTES, Xbyak::DontSetProtectRWE), f_(f), n_(n), wide_(wide)
  {
    const Reg64 saved[] = {rbx, rbp, r12, r13, r14, r15};
    for (const Reg64 &r : saved) push(r);
    take_pointers();
    make_constants();
    xor_(rax, rax);
    Xbyak::Label loop;
    L(loop);
    for (uint32_t k = 0; k < f_->lines; k++) put(f_->line[k]);
    add(rax, wide_ ? 64 : 32);
    cmp(rax, rdx);
    jb(loop, T_NEAR);
    vzeroupper();
    for (int i = 5; i >= 0; i--) pop(saved[i]);
    ret();
    setProtectModeRE();
  }

  cpu_formula_code entry() { return getCode<cpu_formula_code>(); }

  /* Registers besides the formula's: constants and temporaries. */
  static uint32_t registers_max(bool wide) { return wide ? 24 : 11; }

private:
  const brim_formula *f_;
  const brim_node *n_;
  bool wide_;
  int pointer_[2 * BRIM_FORMULA_OPERANDS_MAX] = {}; /* for each pointer, the register that holds it */

  Xmm vector(int i) const { return wide_ ? static_cast<Xmm>(Xbyak::Zmm(i)) : static_cast<Xmm>(Xbyak::Ymm(i)); }
  Xmm temporary(int i) const { return vector((wide_ ? 24 : 11) + i); }
  Xmm sign_bit() const { return temporary(2); }
  Xmm one() const { return temporary(3); }
  Xmm zero() const { return temporary(4); }

  bool is_single(uint32_t input) const { return brim_shape_count(&n_->in[input]->shape) == 1; }

  /* rdi: pointers to inputs, then outputs. An output that is an input has its register. */
  void take_pointers()
  {
    const Reg64 room[POINTERS_MAX] = {rcx, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15};
    int used = 0;
    for (uint32_t k = 0; k < f_->lines; k++) {
      const brim_formula_line *l = &f_->line[k];
      if (l->op == BRIM_FORMULA_LOAD && !is_single(l->a)) take(l->a, room, &used);
      if (l->op != BRIM_FORMULA_STORE) continue;
      int shared = -1;
      for (uint32_t i = 0; i < n_->in_count; i++)
        if (n_->in[i] == n_->out[l->to] && pointer_[i] > 0) shared = (int)i;
      if (shared >= 0)
        pointer_[INPUTS + l->to] = pointer_[shared];
      else
        take(INPUTS + l->to, room, &used);
    }
  }
  void take(uint32_t at, const Reg64 *room, int *used)
  {
    if (*used == POINTERS_MAX) throw Xbyak::Error(Xbyak::ERR_CODE_IS_TOO_BIG);
    mov(room[*used], ptr[rdi + 8 * (int)at]);
    pointer_[at] = room[(*used)++].getIdx();
  }
  Address element(uint32_t at) { return ptr[Reg64(pointer_[at]) + rax]; }
  /* rsi: CPU_FORMULA_LANES copies of each uniform value. */
  Address same(int place) { return ptr[rsi + 4 * CPU_FORMULA_LANES * place]; }

  void make_constants()
  {
    spread(sign_bit(), 0x80000000u);
    spread(one(), 0x3F800000u);
    clear(zero());
  }
  void spread(const Xmm &to, uint32_t bits)
  {
    mov(eax, bits);
    if (wide_) {
      vpbroadcastd(to, eax);
    } else {
      vmovd(Xmm(to.getIdx()), eax);
      vbroadcastss(to, Xmm(to.getIdx()));
    }
  }
  void clear(const Xmm &to)
  {
    if (wide_)
      vpxord(to, to, to);
    else
      vxorps(to, to, to);
  }

  /* Returns an operand's register: its own, or temporary `i` with the uniform value. */
  Xmm in_register(uint8_t operand, int i)
  {
    if (operand < BRIM_FORMULA_UNIFORM) return vector(operand);
    vmovups(temporary(i), same(CPU_PLACE_UNIFORM + operand - BRIM_FORMULA_UNIFORM));
    return temporary(i);
  }
  /* to = x where the comparison of `a` with `b` is true, else y */
  void choose(const Xmm &to, const Xmm &a, const Xmm &b, uint8_t compares, const Xmm &x, const Xmm &y)
  {
    if (wide_) {
      vcmpps(k1, a, b, compares);
      vblendmps(to | k1, y, x);
    } else {
      const Xmm mask = temporary(1);
      vcmpps(mask, a, b, compares);
      vblendvps(to, y, x, mask);
    }
  }

  void put(const brim_formula_line &l)
  {
    enum { LESS_THAN = 1 };
    if (l.op == BRIM_FORMULA_LOAD) {
      if (is_single(l.a))
        vmovups(vector(l.to), same(CPU_PLACE_INPUT + l.a));
      else
        vmovups(vector(l.to), element(l.a));
      return;
    }
    const Xmm a = in_register(l.a, 0);
    if (l.op == BRIM_FORMULA_STORE) {
      vmovups(element(INPUTS + l.to), a);
      return;
    }
    const Xmm to = vector(l.to);
    switch (l.op) {
    case BRIM_FORMULA_NEG:
      flip(to, a);
      return;
    case BRIM_FORMULA_ABS:
      drop_sign(to, a);
      return;
    case BRIM_FORMULA_SQRT:
      vsqrtps(to, a);
      return;
    case BRIM_FORMULA_SIGN: {
      const Xmm minus = temporary(0); /* free: a has a register, because a uniform's sign would be uniform too */
      flip(minus, one());
      choose(minus, a, zero(), LESS_THAN, minus, zero());
      choose(to, zero(), a, LESS_THAN, one(), minus);
      return;
    }
    case BRIM_FORMULA_WHERE:
      put_where(l, to);
      return;
    default:
      break;
    }
    const Xmm b = in_register(l.b, 1);
    switch (l.op) {
    case BRIM_FORMULA_ADD:
      vaddps(to, a, b);
      return;
    case BRIM_FORMULA_SUB:
      vsubps(to, a, b);
      return;
    case BRIM_FORMULA_MUL:
      vmulps(to, a, b);
      return;
    case BRIM_FORMULA_DIV:
      vdivps(to, a, b);
      return;
    case BRIM_FORMULA_MIN: /* the instruction's second operand where neither is less, as choose(b < a, b, a) */
      vminps(to, b, a);
      return;
    case BRIM_FORMULA_MAX:
      vmaxps(to, b, a);
      return;
    case BRIM_FORMULA_LESS:
      choose(to, a, b, LESS_THAN, one(), zero());
      return;
    default: /* is_simple() leaves no other */
      return;
    }
  }

  /* a is compared before b and c, which may need its place */
  void put_where(const brim_formula_line &l, const Xmm &to)
  {
    enum { NOT_EQUAL = 4 };
    const Xmm a = in_register(l.a, 0);
    if (wide_) {
      vcmpps(k1, a, zero(), NOT_EQUAL);
      const Xmm b = in_register(l.b, 0), c = in_register(l.c, 1);
      vblendmps(to | k1, c, b);
    } else {
      vcmpps(temporary(1), a, zero(), NOT_EQUAL);
      const Xmm b = in_register(l.b, 0);
      if (l.c < BRIM_FORMULA_UNIFORM) {
        vblendvps(to, vector(l.c), b, temporary(1));
      } else { /* ~mask & c | mask & b */
        vandps(temporary(0), temporary(1), b);
        vandnps(temporary(1), temporary(1), same(CPU_PLACE_UNIFORM + l.c - BRIM_FORMULA_UNIFORM));
        vorps(to, temporary(0), temporary(1));
      }
    }
  }

  void flip(const Xmm &to, const Xmm &a)
  {
    if (wide_)
      vpxord(to, a, sign_bit());
    else
      vxorps(to, a, sign_bit());
  }
  void drop_sign(const Xmm &to, const Xmm &a)
  {
    if (wide_)
      vpandnd(to, sign_bit(), a);
    else
      vandnps(to, sign_bit(), a);
  }
};

bool is_simple(const brim_formula *f)
{
  for (uint32_t k = 0; k < f->lines; k++) switch (f->line[k].op) {
    case BRIM_FORMULA_EXP:
    case BRIM_FORMULA_LOG:
    case BRIM_FORMULA_LOG1P:
    case BRIM_FORMULA_TANH:
    case BRIM_FORMULA_SIGMOID:
    case BRIM_FORMULA_ERF:
      return false;
    default:
      break;
    }
  return true;
}

} // namespace

extern "C" void *cpu_formula_code_make(const brim_formula *f, const brim_node *n, int32_t isa, cpu_formula_code *entry)
{
  const bool wide = isa == 2;
  if (isa < 1 || !is_simple(f) || f->registers > Code::registers_max(wide)) return nullptr;
  try {
    Code *code = new Code(f, n, wide);
    *entry = code->entry();
    return code;
  } catch (...) { /* no executable memory, or more operands than registers */
    return nullptr;
  }
}

extern "C" void cpu_formula_code_free(void *code)
{
  delete static_cast<Code *>(code);
}
