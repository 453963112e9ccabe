// Sums over the threads of a row, in one order whatever the launch's other shape.
#pragma once

#include "hk/device.h"

namespace hk {

// Over groups of width lanes of a warp, a power of two; every lane gets its group's.
__device__ inline float group_sum(float v, int width) {
  for (int step = width / 2; step > 0; step /= 2) v += shuffle_xor(v, step, width);
  return v;
}

// Floats in shared memory for kSums of every warp of a block.
template <int kSums>
using RowPartials = float[kSums][kMaxThreads / kWarp];

// Each of v over blockDim.x threads, lanes of a warp or whole warps; blocks have a row for each y.
// Where a row has more threads than a warp every thread of the block has to come, and partials may
// be used again only after another barrier.
template <int kSums>
__device__ inline void row_sums(float (&v)[kSums], RowPartials<kSums>& partials) {
  const int threads = blockDim.x;
  const int width = threads < kWarp ? threads : kWarp;
#pragma unroll
  for (int s = 0; s < kSums; ++s) v[s] = group_sum(v[s], width);
  if (threads <= kWarp) return;

  const int warps = threads / kWarp, first = threadIdx.y * warps;
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) partials[s][first + threadIdx.x / kWarp] = v[s];
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    v[s] = group_sum(lane < warps ? partials[s][first + lane] : 0.0f, kWarp);
  }
}

}  // namespace hk
