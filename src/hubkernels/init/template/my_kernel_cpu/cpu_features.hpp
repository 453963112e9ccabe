// What this machine can run: the processor has it, and the operating system saves its registers.
#pragma once

namespace my_kernel_cpu {

inline bool has_baseline() { return true; }

// The flags of the section my_kernel_cpu_avx512.
inline bool has_avx512() { return __builtin_cpu_supports("avx512f"); }

}  // namespace my_kernel_cpu
