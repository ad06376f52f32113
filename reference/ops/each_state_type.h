/* each_state_type.h - compiles the kernels in the file KERNELS for float32 and float64, as each_type.h says. */
#define LOAD(x) (x)
#define STORE(real) (real)

#define X float
#define REAL float
#define OP(name) name##_f32
#include KERNELS
#undef X
#undef REAL
#undef OP

#define X double
#define REAL double
#define OP(name) name##_f64
#include KERNELS
#undef X
#undef REAL
#undef OP

#undef LOAD
#undef STORE
#undef KERNELS
