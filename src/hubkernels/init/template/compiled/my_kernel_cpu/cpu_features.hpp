// What this machine can run: the processor has it, and the operating system saves its registers.
#pragma once

namespace my_kernel_cpu {

inline bool has_baseline() { return true; }

// The flags of the section with AVX-512. (Every processor with AVX-512 has f16c, which clang cannot
// ask for.)
inline bool has_avx512() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace my_kernel_cpu
