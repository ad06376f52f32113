/* each_type.h - compiles the kernels in the file KERNELS once for each element type.
 *
 *   #define KERNELS "ops/gelu_cpu.h"
 *   #include "ops/each_type.h"
 *
 * In that file REAL is the element type, REAL_TYPE its enum dtype, and OP(name) is
 * name_f32 or name_f64.  No include guard: it is included once for each set of kernels.
 */
#define REAL float
#define REAL_TYPE DTYPE_F32
#define OP(name) name##_f32
#include KERNELS
#undef REAL
#undef REAL_TYPE
#undef OP

#define REAL double
#define REAL_TYPE DTYPE_F64
#define OP(name) name##_f64
#include KERNELS
#undef REAL
#undef REAL_TYPE
#undef OP

#undef KERNELS
