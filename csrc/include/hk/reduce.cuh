// Sums over the threads of a row, in one order whatever the launch's other shape.
#pragma once

#include "hk/device.h"

namespace hk {

// Over groups of width lanes of a warp, a power of two; every lane gets its group's.
__device__ inline float group_sum(float v, int width) {
  for (int step = width / 2; step > 0; step /= 2) v += shuffle_xor(v, step, width);
  return v;
}

// Over blockDim.x threads, a power of two; blocks have a row for each y. partials: shared, a float
// for each warp of the block. Where a row has more threads than a warp every thread has to come.
__device__ inline float row_sum(float v, float* partials) {
  const int threads = blockDim.x;
  if (threads <= kWarp) return group_sum(v, threads);
  v = group_sum(v, kWarp);
  const int warps = threads / kWarp;
  float* row = partials + threadIdx.y * warps;
  if (threadIdx.x % kWarp == 0) row[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = 0;
  for (int i = 0; i < warps; ++i) v += row[i];
  return v;
}

}  // namespace hk
