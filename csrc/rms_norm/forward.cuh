// Forward of the RMS norms: a row in registers, or read twice where it is longer than they are.
#pragma once

#include <cmath>

#include "hk/launch.h"
#include "hk/reduce.cuh"
#include "hk/silu.cuh"
#include "hk/weight.cuh"

namespace hk {

// What is normed: x; the rounded sum x + residual; or x with a gate, either x * silu(gate), or x,
// and the norm is multiplied by silu(gate): NormRows::gate_last tells which.
enum class Norm { plain, sum, gated };

template <typename T>
struct NormRows {
  const T* x;
  int64_t x_stride;
  const T* other;  // residual or gate; null: neither
  int64_t other_stride;
  T* summed;
  int64_t summed_stride;
  T* y;
  int64_t y_stride;
  float* rstd;  // null: not wanted
  int64_t rows;
  int64_t cols;
  double eps;
  bool gate_last;
};

constexpr float kTiny = 1e-30f;

// Whether squares in float may have lost the mean: they overflow from 1e19 on, and vanish below
// 1e-19, which counts where eps does not cover it.
__device__ inline bool left_range(float sum, float mean, double eps) {
  return isinf(sum) || (mean < kTiny && eps < kTiny);
}

// A vector of what is normed, and of what its norm is multiplied by beside the weight. One silu
// serves both orders of a gate: x and it are kept, and multiplied again.
template <Norm kNorm, typename T>
struct Normed {
  static constexpr int N = kLanes<T>;
  Pack<T, N> kept;

  __device__ static Normed of(const Pack<T, N>& x, const Pack<T, N>& other) {
    Normed normed{x};
    if constexpr (kNorm == Norm::sum) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        normed.kept.lane[i] = from_float<T>(to_float(x.lane[i]) + to_float(other.lane[i]));
      }
    }
    return normed;
  }
  __device__ float value(int i, bool) const { return to_float(kept.lane[i]); }
  __device__ float factor(int, bool) const { return 1; }
};

template <typename T>
struct Normed<Norm::gated, T> {
  static constexpr int N = kLanes<T>;
  Pack<T, N> kept;
  float gate[N];

  __device__ static Normed of(const Pack<T, N>& x, const Pack<T, N>& other) {
    Normed normed{x, {}};
#pragma unroll
    for (int i = 0; i < N; ++i) normed.gate[i] = silu(to_float(other.lane[i])).value;
    return normed;
  }
  __device__ float value(int i, bool gate_last) const {
    return product(to_float(kept.lane[i]), gate_last ? 1 : gate[i]);
  }
  __device__ float factor(int i, bool gate_last) const { return gate_last ? gate[i] : 1; }
};

template <Norm kNorm, typename T>
__device__ inline float sum_squares(const Normed<kNorm, T>& normed, bool gate_last) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    const float v = normed.value(i, gate_last);
    sum = fmaf(v, v, sum);
  }
  return sum;
}

// By one thread for itself, and slowly, in few registers: hardly a row ever needs it. A sum is read
// where it was written. gate: null where x itself is normed.
template <typename T>
__device__ __noinline__ float precise_rstd(const T* x, const T* gate, int64_t cols, double eps) {
  double sum = 0;
#pragma unroll 1
  for (int64_t c = 0; c < cols; ++c) {
    const float factor = gate == nullptr ? 1 : silu(to_float(gate[c])).value;
    const double v = product(to_float(x[c]), factor);
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
  const bool gate_first = kNorm == Norm::gated && !args.gate_last;
  return precise_rstd(x, gate_first ? args.other + row * args.other_stride : nullptr, args.cols,
                      args.eps);
}

template <Norm kNorm, typename T, int N>
__device__ inline Pack<T, N> scaled(const Normed<kNorm, T>& normed, float rstd,
                                    const float (&weight)[N], bool gate_last) {
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float v = normed.value(i, gate_last) * rstd * weight[i];
    y.lane[i] = from_float<T>(v * normed.factor(i, gate_last));
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

// Vectors that a thread of a short row keeps, and of any row with a gate, whose vectors take more
// registers; one vector takes this kernel too.
constexpr int kShortPacks = 2;

// A row has blockDim.x threads, each with up to kPacks vectors of it; a block blockDim.y rows.
// Every row of every tensor begins and ends at a vector.
template <Norm kNorm, int kPacks, typename T>
__global__ void __launch_bounds__(kPacks < kRowPacks && kNorm != Norm::gated ? kUsualThreads
                                                                             : kBoundThreads<kNorm>,
                                  1)
    norm_in_registers(const NormRows<T> args, const AnyWeight weight) {
  constexpr Whole kWhole;
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
    x[p] = read<N>(kWhole, args.x + row * args.x_stride, column_of(p), cols);
    if constexpr (kNorm != Norm::plain) {
      other[p] = read<N>(kWhole, args.other + row * args.other_stride, column_of(p), cols);
    }
  }
  Normed<kNorm, T> normed[kPacks];
  float sum[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    normed[p] = Normed<kNorm, T>::of(x[p], other[p]);
    sum[0] += sum_squares(normed[p], args.gate_last);
    if constexpr (kNorm == Norm::sum) {
      if (live) {
        write(kWhole, args.summed + row * args.summed_stride, column_of(p), cols, normed[p].kept);
      }
    }
  }
  row_sums(sum, partials);
  if constexpr (kNorm == Norm::sum) sync_warp();
  const float rstd = rstd_of<kNorm>(args, row, sum[0]);
  if (!live) return;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float factors[N];
    read_weight<T>(kWhole, weight, column_of(p), cols, 1, factors);
    write(kWhole, args.y + row * args.y_stride, column_of(p), cols,
          scaled(normed[p], rstd, factors, args.gate_last));
  }
  if (threadIdx.x == 0 && args.rstd != nullptr) args.rstd[row] = rstd;
}

// As above, for rows of any length, and of any place in memory: terms are added in the same order.
// What a thread wrote of a sum it reads again. A sum whose other is null is x: few rows come here,
// and one kernel serves both.
template <Norm kNorm, typename T>
__global__ void __launch_bounds__(kNormThreads)
    norm_in_two_passes(const NormRows<T> args, const AnyWeight weight, bool whole) {
  constexpr int N = kLanes<T>;
  __shared__ RowPartials<1> partials;
  const int64_t index = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = index < args.rows;
  const int64_t row = live ? index : args.rows - 1;
  const int64_t first = int64_t{threadIdx.x} * N, step = int64_t{blockDim.x} * N;
  const bool is_sum = kNorm == Norm::sum && args.other != nullptr;
  const T* x = args.x + row * args.x_stride;
  const T* other = args.other == nullptr ? nullptr : args.other + row * args.other_stride;
  T* summed = args.summed + row * args.summed_stride;
  float sum[1] = {0};
#pragma unroll 1
  for (int64_t c = first; live && c < args.cols; c += step) {
    Normed<kNorm, T> normed{read<N>(whole, x, c, args.cols)};
    if (other != nullptr) {
      normed = Normed<kNorm, T>::of(normed.kept, read<N>(whole, other, c, args.cols));
    }
    sum[0] += sum_squares(normed, args.gate_last);
    if (is_sum) write(whole, summed, c, args.cols, normed.kept);
  }
  row_sums(sum, partials);
  if constexpr (kNorm == Norm::sum) sync_warp();
  if (!live) return;
  const float rstd = kNorm == Norm::sum && !is_sum ? rstd_of<Norm::plain>(args, row, sum[0])
                                                   : rstd_of<kNorm>(args, row, sum[0]);
#pragma unroll 1
  for (int64_t c = first; c < args.cols; c += step) {
    Normed<kNorm, T> again{read<N>(whole, is_sum ? summed : x, c, args.cols)};
    if constexpr (kNorm == Norm::gated) {
      again = Normed<kNorm, T>::of(again.kept, read<N>(whole, other, c, args.cols));
    }
    float factors[N];
    read_weight<T>(whole, weight, c, args.cols, 1, factors);
    write(whole, args.y + row * args.y_stride, c, args.cols,
          scaled(again, rstd, factors, args.gate_last));
  }
  if (threadIdx.x == 0 && args.rstd != nullptr) args.rstd[row] = rstd;
}

// In registers where every row of every tensor begins and ends at a vector.
template <Norm kNorm, typename T>
cudaError_t launch_norm(const NormRows<T>& args, const AnyWeight& weight, cudaStream_t stream) {
  constexpr int N = kLanes<T>;
  constexpr int kPacks = kNorm == Norm::gated ? kShortPacks : kRowPacks;
  constexpr Norm kLong = kNorm == Norm::plain ? Norm::sum : kNorm;
  const RowLaunch shape = pick_row_launch(ceil_div(args.cols, N), kNormThreads, kPacks);
  const bool whole =
      at_vectors(N, args.rows, args.cols, RowsAt{args.x, args.x_stride},
                 RowsAt{args.other, args.other_stride}, RowsAt{args.summed, args.summed_stride},
                 RowsAt{args.y, args.y_stride}, RowsAt{weight.data, 0});
  const auto grid = static_cast<unsigned>(ceil_div(args.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (!whole || shape.packs == 0) {
    norm_in_two_passes<kLong><<<grid, block, 0, stream>>>(args, weight, whole);
  } else if (shape.packs <= kShortPacks) {
    norm_in_registers<kNorm, kShortPacks><<<grid, block, 0, stream>>>(args, weight);
  } else if constexpr (kPacks > kShortPacks) {
    norm_in_registers<kNorm, kPacks><<<grid, block, 0, stream>>>(args, weight);
  }
  return cudaGetLastError();
}

}  // namespace hk
