// What differs between the vendors of a device: lanes of a warp, and how they hand values on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hk {

constexpr int kWarp = 32;

// The value of the lane whose number differs by step, within groups of width lanes. Every lane of
// the warp takes part.
__device__ inline float shuffle_xor(float v, int step, int width) {
  return __shfl_xor_sync(0xffffffffu, v, step, width);
}

// The value of the lane step before; a lane that has none before it gets its own.
__device__ inline int shuffle_up(int v, int step) { return __shfl_up_sync(0xffffffffu, v, step); }

// What lanes of a warp wrote to shared memory before is seen by all of them after.
__device__ inline void warp_sync() { __syncwarp(); }

}  // namespace hk
