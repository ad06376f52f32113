/* each_type.h - compiles the kernels in the file KERNELS once for each work type.
 *
 *   #define KERNELS "ops/gelu_cpu.h"
 *   #include "ops/each_type.h"
 *
 * In that file X is the type that elements are stored in and REAL the one they are computed with, which
 * is also that of sums, gradients of weights and updates (S of ops.h).  LOAD(x) widens an element, STORE(real)
 * rounds one; for float and double they do nothing.  OP(name) is name_f32, name_f64, name_bf16 or name_f16.
 * each_state_type.h is the same without the narrow types, for kernels whose tensors all have the state type.
 * No include guard: it is included once for each set of kernels.
 */
#include "base/bf16.h"
#include "base/f16.h"

#define X uint16_t
#define REAL float
#define LOAD(x) bf16_widen(x)
#define STORE(real) bf16_round(real)
#define OP(name) name##_bf16
#include KERNELS
#undef X
#undef REAL
#undef LOAD
#undef STORE
#undef OP

#define X uint16_t
#define REAL float
#define LOAD(x) f16_widen(x)
#define STORE(real) f16_round(real)
#define OP(name) name##_f16
#include KERNELS
#undef X
#undef REAL
#undef LOAD
#undef STORE
#undef OP

#include "ops/each_state_type.h"
