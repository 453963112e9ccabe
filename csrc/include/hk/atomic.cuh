// Additions to device memory whose result nobody waits for.
#pragma once

#include "hk/device.h"
#include "hk/pack.cuh"

namespace hk {

// At a multiple of the pack's size. A kernel that adds to memory reads none of it: loads may move
// across. From sm_90 on four floats are one instruction.
__device__ inline void add_to(float* to, const Pack<float, 4>& pack) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(pack.lane[0]),
               "f"(pack.lane[1]), "f"(pack.lane[2]), "f"(pack.lane[3]));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) atomicAdd(to + i, pack.lane[i]);
#endif
}

__device__ inline void add_to(float* to, const Pack<float, 1>& pack) {
  atomicAdd(to, pack.lane[0]);
}

// Two's complement: the sum is that of signed numbers.
__device__ inline void add_to(int64_t* to, int64_t v) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(v));
}

}  // namespace hk
