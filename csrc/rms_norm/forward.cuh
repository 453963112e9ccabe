// The kernels of the RMS norm: a row in registers, or read twice where it is longer than they are.
#pragma once

#include <cmath>

#include "hk/convert.cuh"
#include "hk/launch.h"
#include "hk/pack.cuh"
#include "hk/reduce.cuh"

namespace hk {

template <typename T, typename W>
struct RowNorm {
  const T* x;
  int64_t x_stride;
  const W* weight;  // null: ones
  float offset;
  T* y;
  float* rstd;
  int64_t rows;
  int64_t cols;
  double eps;
};

constexpr float kTiny = 1e-30f;

// Whether squares in float may have lost the mean: they overflow from 1e19 on, and vanish below
// 1e-19, which counts where eps does not cover it.
__device__ inline bool left_range(float sum, float mean, double eps) {
  return isinf(sum) || (mean < kTiny && eps < kTiny);
}

// By one thread for itself: it takes long, and few rows ever need it. Not inlined, so that its
// registers are not the kernels'.
template <typename T>
__device__ __noinline__ float precise_rstd(const T* x, int64_t cols, double eps) {
  double sum = 0;
  for (int64_t c = 0; c < cols; ++c) {
    const double v = to_float(x[c]);
    sum += v * v;
  }
  return static_cast<float>(1 / sqrt(sum / static_cast<double>(cols) + eps));
}

template <typename T, typename W>
__device__ inline float rstd_of(const RowNorm<T, W>& args, const T* x, float sum) {
  const float mean = sum / static_cast<float>(args.cols);
  if (left_range(sum, mean, args.eps)) return precise_rstd(x, args.cols, args.eps);
  return 1 / sqrtf(mean + static_cast<float>(args.eps));
}

template <typename T, int kLanes>
__device__ inline float sum_squares(const Pack<T, kLanes>& pack) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float v = to_float(pack.lane[i]);
    sum += v * v;
  }
  return sum;
}

template <typename T, typename W, int kLanes>
__device__ inline Pack<T, kLanes> scaled(const RowNorm<T, W>& args, const Pack<T, kLanes>& pack,
                                         float rstd, int64_t column) {
  Pack<T, kLanes> out;
  if (args.weight == nullptr) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) out.lane[i] = from_float<T>(to_float(pack.lane[i]) * rstd);
    return out;
  }
  const auto weight = load<W, kLanes>(args.weight + column);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float factor = to_float(weight.lane[i]) + args.offset;
    out.lane[i] = from_float<T>(to_float(pack.lane[i]) * rstd * factor);
  }
  return out;
}

// A row has blockDim.x threads, each with up to kRowPacks vectors of it; a block blockDim.y rows.
template <typename T, typename W, int kLanes>
__global__ void __launch_bounds__(kMaxThreads) norm_in_registers(const RowNorm<T, W> args) {
  __shared__ float partials[kMaxThreads / kWarp];
  const int64_t vectors = args.cols / kLanes;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < args.rows;
       first += int64_t{gridDim.x} * blockDim.y) {
    const int64_t row = first + threadIdx.y;
    const bool live = row < args.rows;
    const T* x = args.x + (live ? row : first) * args.x_stride;
    Pack<T, kLanes> packs[kRowPacks];
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kRowPacks; ++p) {
      const int64_t vector = threadIdx.x + int64_t{p} * blockDim.x;
      if (vector < vectors) packs[p] = load<T, kLanes>(x + vector * kLanes);
    }
#pragma unroll
    for (int p = 0; p < kRowPacks; ++p) {
      if (threadIdx.x + int64_t{p} * blockDim.x < vectors) sum += sum_squares(packs[p]);
    }
    sum = row_sum(sum, partials);
    const float rstd = rstd_of(args, x, sum);
    if (live) {
#pragma unroll
      for (int p = 0; p < kRowPacks; ++p) {
        const int64_t column = (threadIdx.x + int64_t{p} * blockDim.x) * kLanes;
        if (column < args.cols)
          store(args.y + row * args.cols + column, scaled(args, packs[p], rstd, column));
      }
      if (threadIdx.x == 0) args.rstd[row] = rstd;
    }
    if (gridDim.x * int64_t{blockDim.y} < args.rows) __syncthreads();  // partials are used again
  }
}

// A block a row, of any length.
template <typename T, typename W, int kLanes>
__global__ void __launch_bounds__(kMaxThreads) norm_in_two_passes(const RowNorm<T, W> args) {
  __shared__ float partials[kMaxThreads / kWarp];
  const int64_t vectors = args.cols / kLanes;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = args.x + row * args.x_stride;
    float sum = 0;
    for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x)
      sum += sum_squares(load<T, kLanes>(x + v * kLanes));
    const float rstd = rstd_of(args, x, row_sum(sum, partials));
    for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      const int64_t column = v * kLanes;
      store(args.y + row * args.cols + column,
            scaled(args, load<T, kLanes>(x + column), rstd, column));
    }
    if (threadIdx.x == 0) args.rstd[row] = rstd;
    __syncthreads();  // partials are used again
  }
}

}  // namespace hk
