// What differs between the vendors of a device: lanes of a warp, and how they hand values on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "hk/launch.h"

namespace hk {

// The value of the lane whose number differs by step, within groups of width lanes. Every lane of
// the warp takes part.
__device__ inline float shuffle_xor(float v, int step, int width) {
  return __shfl_xor_sync(0xffffffffu, v, step, width);
}

// a * b, rounded: never part of a fused operation. Where the same sum is computed by two kernels,
// what is fused is written out, so that both give the same bits.
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }

// 1 / v to 2 ulp, for v of a usual size.
__device__ inline float reciprocal(float v) { return __fdividef(1.0f, v); }

// What lanes of a warp wrote before can be read by the others after.
__device__ inline void sync_warp() { __syncwarp(); }

}  // namespace hk
