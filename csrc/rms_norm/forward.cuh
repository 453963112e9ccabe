// Forward of the RMS norms: a row in registers, or read twice where it is longer than they are.
#pragma once

#include <cmath>
#include <type_traits>

#include "hk/launch.h"
#include "hk/reduce.cuh"
#include "hk/silu.cuh"
#include "hk/weight.cuh"

namespace hk {

// What is normed: x; the rounded sum x + residual; x * silu(gate); or x, and the norm is multiplied
// by silu(gate).
enum class Norm { plain, sum, gate_first, gate_last };

template <typename T>
struct NormRows {
  const T* x;
  int64_t x_stride;
  const T* other;  // residual or gate
  int64_t other_stride;
  T* summed;
  int64_t summed_stride;
  T* y;
  int64_t y_stride;
  float* rstd;  // null: not wanted
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

// A product with a gate is kept as it is computed, all else in its type.
template <typename T, Norm kNorm>
using Normed = Pack<std::conditional_t<kNorm == Norm::gate_first, float, T>, kLanes<T>>;

template <Norm kNorm, typename T>
__device__ inline float normed_of(T x, T other) {
  if constexpr (kNorm == Norm::sum) return to_float(x) + to_float(other);
  if constexpr (kNorm == Norm::gate_first) return product(to_float(x), silu(to_float(other)).value);
  return to_float(x);
}

template <Norm kNorm, typename T, int N>
__device__ inline Normed<T, kNorm> normed_of(const Pack<T, N>& x, const Pack<T, N>& other) {
  using Kept = std::remove_reference_t<decltype(Normed<T, kNorm>{}.lane[0])>;
  Normed<T, kNorm> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to.lane[i] = from_float<Kept>(normed_of<kNorm>(x.lane[i], other.lane[i]));
  }
  return to;
}

template <typename T, int N>
__device__ inline float sum_squares(const Pack<T, N>& pack) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float v = to_float(pack.lane[i]);
    sum = fmaf(v, v, sum);
  }
  return sum;
}

// By one thread for itself, and slowly, in few registers: hardly a row ever needs it. A sum is read
// where it was written.
template <Norm kNorm, typename T>
__device__ inline float precise_rstd(const T* x, const T* other, int64_t cols, double eps) {
  double sum = 0;
#pragma unroll 1
  for (int64_t c = 0; c < cols; ++c) {
    const T gate = kNorm == Norm::gate_first ? other[c] : x[c];
    const double v = normed_of<kNorm == Norm::gate_first ? kNorm : Norm::plain>(x[c], gate);
    sum += v * v;
  }
  return static_cast<float>(1 / sqrt(sum / static_cast<double>(cols) + eps));
}

// Once what the threads of the row wrote of its sum can be read.
template <Norm kNorm, typename T>
__device__ inline float rstd_of(const NormRows<T>& args, int64_t row, float sum) {
  const float mean = sum / static_cast<float>(args.cols);
  if (!left_range(sum, mean, args.eps)) return 1 / sqrtf(mean + static_cast<float>(args.eps));
  const T* x =
      kNorm == Norm::sum ? args.summed + row * args.summed_stride : args.x + row * args.x_stride;
  const T* other = kNorm == Norm::gate_first ? args.other + row * args.other_stride : nullptr;
  return precise_rstd<kNorm>(x, other, args.cols, args.eps);
}

template <Norm kNorm, typename K, typename T, int N>
__device__ inline Pack<T, N> scaled(const Pack<K, N>& normed, const Pack<T, N>& other, float rstd,
                                    const float (&weight)[N]) {
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float v = to_float(normed.lane[i]) * rstd * weight[i];
    if constexpr (kNorm == Norm::gate_last) v *= silu(to_float(other.lane[i])).value;
    y.lane[i] = from_float<T>(v);
  }
  return y;
}

// Threads of a block at most, the same for each norm, so that a row has the same bits in all: that
// of a sum those of the norm of the sum. More leave too few registers for vectors of two tensors.
constexpr int kNormThreads = kMaxThreads / 2;

// What bounds the registers. Those of one tensor fit into fewer, and more blocks beside one
// another.
template <Norm kNorm>
constexpr int kBoundThreads = kNorm == Norm::plain ? kMaxThreads : kNormThreads;

// A row has blockDim.x threads, each with up to kPacks vectors of it; a block blockDim.y rows.
template <Norm kNorm, int kPacks, typename T, typename W>
__global__ void __launch_bounds__(kPacks < kRowPacks ? kUsualThreads : kBoundThreads<kNorm>, 1)
    norm_in_registers(const NormRows<T> args, const Weight<W> weight) {
  constexpr bool kWhole = true;
  constexpr int N = kLanes<T>;
  __shared__ RowPartials<1> partials;
  const int64_t index = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = index < args.rows;
  const int64_t row = live ? index : args.rows - 1;  // every thread is wanted for the sums
  const int cols = static_cast<int>(args.cols);
  const auto column_of = [](int p) { return static_cast<int>((threadIdx.x + p * blockDim.x) * N); };

  Pack<T, N> x[kPacks], other[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    x[p] = read<kWhole, N>(args.x + row * args.x_stride, column_of(p), cols);
    if constexpr (kNorm != Norm::plain) {
      other[p] = read<kWhole, N>(args.other + row * args.other_stride, column_of(p), cols);
    }
  }
  Normed<T, kNorm> normed[kPacks];
  float sum[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    normed[p] = normed_of<kNorm>(x[p], other[p]);
    sum[0] += sum_squares(normed[p]);
    if constexpr (kNorm == Norm::sum) {
      if (live)
        write<kWhole>(args.summed + row * args.summed_stride, column_of(p), cols, normed[p]);
    }
  }
  row_sums(sum, partials);
  if constexpr (kNorm == Norm::sum) sync_warp();
  const float rstd = rstd_of<kNorm>(args, row, sum[0]);
  if (!live) return;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float factors[N];
    read_weight<kWhole>(weight, column_of(p), cols, 1, factors);
    write<kWhole>(args.y + row * args.y_stride, column_of(p), cols,
                  scaled<kNorm>(normed[p], other[p], rstd, factors));
  }
  if (threadIdx.x == 0 && args.rstd != nullptr) args.rstd[row] = rstd;
}

// As above, for rows of any length, and of any place in memory: terms are added in the same order.
// What a thread wrote of a sum it reads again.
template <Norm kNorm, bool kWhole, typename T>
__global__ void __launch_bounds__(kBoundThreads<kNorm>)
    norm_in_two_passes(const NormRows<T> args, const AnyWeight weight) {
  constexpr int N = kLanes<T>;
  constexpr Norm kAgain = kNorm == Norm::sum ? Norm::plain : kNorm;
  __shared__ RowPartials<1> partials;
  const int64_t index = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = index < args.rows;
  const int64_t row = live ? index : args.rows - 1;
  const int64_t first = int64_t{threadIdx.x} * N, step = int64_t{blockDim.x} * N;
  const T* x = args.x + row * args.x_stride;
  const T* other = args.other + row * args.other_stride;
  T* summed = args.summed + row * args.summed_stride;
  const auto other_at = [&](int64_t c) {
    if constexpr (kNorm == Norm::plain) return Pack<T, N>{};
    return read<kWhole, N>(other, c, args.cols);
  };
  float sum[1] = {0};
  for (int64_t c = first; live && c < args.cols; c += step) {
    const auto normed = normed_of<kNorm>(read<kWhole, N>(x, c, args.cols), other_at(c));
    sum[0] += sum_squares(normed);
    if constexpr (kNorm == Norm::sum) write<kWhole>(summed, c, args.cols, normed);
  }
  row_sums(sum, partials);
  if constexpr (kNorm == Norm::sum) sync_warp();
  if (!live) return;
  const float rstd = rstd_of<kNorm>(args, row, sum[0]);
  for (int64_t c = first; c < args.cols; c += step) {
    const Pack<T, N> again = read<kWhole, N>(kNorm == Norm::sum ? summed : x, c, args.cols);
    const Pack<T, N> gate = kNorm == Norm::sum ? Pack<T, N>{} : other_at(c);
    float factors[N];
    read_weight<kWhole, T>(weight, c, args.cols, 1, factors);
    write<kWhole>(args.y + row * args.y_stride, c, args.cols,
                  scaled<kAgain>(normed_of<kAgain>(again, gate), gate, rstd, factors));
  }
  if (threadIdx.x == 0 && args.rstd != nullptr) args.rstd[row] = rstd;
}

template <Norm kNorm, typename T, typename W>
void launch_in_registers(const RowLaunch& shape, const NormRows<T>& args, const Weight<W>& weight,
                         cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(ceil_div(args.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (shape.packs == 1) {
    norm_in_registers<kNorm, 1><<<grid, block, 0, stream>>>(args, weight);
  } else if (shape.packs == 2) {
    norm_in_registers<kNorm, 2><<<grid, block, 0, stream>>>(args, weight);
  } else {
    norm_in_registers<kNorm, kRowPacks><<<grid, block, 0, stream>>>(args, weight);
  }
}

// In registers where every row of every tensor begins and ends at a vector.
template <Norm kNorm, typename T>
cudaError_t launch_norm(const NormRows<T>& args, const AnyWeight& weight, cudaStream_t stream) {
  constexpr int N = kLanes<T>;
  const RowLaunch shape = pick_row_launch(ceil_div(args.cols, N), kNormThreads);
  const bool whole =
      at_vectors(N, args.rows, args.cols, RowsAt{args.x, args.x_stride},
                 RowsAt{args.other, args.other_stride}, RowsAt{args.summed, args.summed_stride},
                 RowsAt{args.y, args.y_stride}, RowsAt{weight.data, 0});
  const auto grid = static_cast<unsigned>(ceil_div(args.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (!whole) {
    norm_in_two_passes<kNorm, false><<<grid, block, 0, stream>>>(args, weight);
  } else if (shape.packs == 0) {
    norm_in_two_passes<kNorm, true><<<grid, block, 0, stream>>>(args, weight);
  } else if (weight.data == nullptr || weight.dtype == DType::f32) {
    const Weight<float> of{static_cast<const float*>(weight.data), weight.offset};
    launch_in_registers<kNorm>(shape, args, of, stream);
  } else {
    const Weight<T> of{static_cast<const T*>(weight.data), weight.offset};
    launch_in_registers<kNorm>(shape, args, of, stream);
  }
  return cudaGetLastError();
}

}  // namespace hk
