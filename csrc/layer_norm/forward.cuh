// Forward of layer norm: a row in registers, or read three times where it is longer than they are.
#pragma once

#include <cmath>

#include "hk/launch.h"
#include "hk/reduce.cuh"
#include "hk/weight.cuh"
#include "layer_norm/standardize.cuh"

namespace hk {

template <typename T>
struct LayerRows {
  const T* x;
  int64_t x_stride;
  T* y;
  float* mean;
  float* mean_rest;
  float* rstd;
  int64_t rows;
  int64_t cols;
  double eps;
};

struct LayerStatistics {
  float mean, rest, rstd;
};

// By one thread for itself, and slowly, in few registers: hardly a row ever needs it. Exact for
// equal elements.
template <typename T>
__device__ __noinline__ LayerStatistics precise_statistics(const T* x, int64_t cols, double eps) {
  const double shift = to_float(x[0]), count = static_cast<double>(cols);
  double first = 0, second = 0;
#pragma unroll 1
  for (int64_t c = 0; c < cols; ++c) first += to_float(x[c]) - shift;
  const double mean = shift + first / count;
#pragma unroll 1
  for (int64_t c = 0; c < cols; ++c) {
    const double d = to_float(x[c]) - mean;
    second += d * d;
  }
  const float rounded = static_cast<float>(mean);
  return {rounded, static_cast<float>(mean - rounded),
          static_cast<float>(1 / sqrt(second / count + eps))};
}

constexpr float kTinyVariance = 1e-30f;

// From the sums of d = x - mean and of d * d, where mean is a float near the row's. Squares in
// float overflow from 1e19 on, and vanish below 1e-19, which counts where eps does not cover it.
template <typename T>
__device__ inline LayerStatistics statistics_of(const LayerRows<T>& args, const T* x, float mean,
                                                const float (&sums)[2]) {
  const float share = 1 / static_cast<float>(args.cols);
  const float rest = product(sums[0], share);
  const float variance = fmaxf(fmaf(-rest, rest, product(sums[1], share)), 0);
  const bool lost = !isfinite(sums[1]) || (variance < kTinyVariance && args.eps < kTinyVariance);
  if (lost) return precise_statistics(x, args.cols, args.eps);
  return {mean, rest, 1 / sqrtf(variance + static_cast<float>(args.eps))};
}

template <typename T>
__device__ inline void save(const LayerRows<T>& args, int64_t row, const LayerStatistics& found) {
  args.mean[row] = found.mean;
  args.mean_rest[row] = found.rest;
  args.rstd[row] = found.rstd;
}

// Lanes behind the row add nothing.
template <typename Rows, typename T, int N>
__device__ inline void add_distances(Rows whole, const Pack<T, N>& pack, float from, int64_t column,
                                     int64_t cols, float& sum, float& squares) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float d = to_float(pack.lane[i]) - from;
    if (whole || column + i < cols) {
      sum += d;
      squares = fmaf(d, d, squares);
    }
  }
}

template <typename T, int N>
__device__ inline Pack<T, N> scaled(const Pack<T, N>& x, const Standardize& standardize,
                                    const float (&weight)[N], const float (&bias)[N]) {
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    y.lane[i] = from_float<T>(fmaf(standardize(to_float(x.lane[i])), weight[i], bias[i]));
  }
  return y;
}

constexpr int kLayerThreads = kMaxThreads / 2;

// Vectors that a thread of a short row keeps; one vector takes its kernel too.
constexpr int kShortLayerPacks = 2;

// A row has blockDim.x threads, each with up to kPacks vectors of it; a block blockDim.y rows.
// Every row of every tensor begins and ends at a vector.
template <int kPacks, typename T>
__global__ void __launch_bounds__(kPacks < kRowPacks ? kUsualThreads : kLayerThreads, 1)
    layer_in_registers(const LayerRows<T> args, const AnyWeight weight, const AnyWeight bias) {
  constexpr Whole kWhole;
  constexpr int N = kLanes<T>;
  __shared__ RowPartials<1> first;
  __shared__ RowPartials<2> second;
  const int64_t index = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = index < args.rows;
  const int64_t row = live ? index : args.rows - 1;  // every thread is wanted for the sums
  const int cols = static_cast<int>(args.cols);
  const T* x = args.x + row * args.x_stride;
  const auto column_of = [](int p) { return static_cast<int>((threadIdx.x + p * blockDim.x) * N); };

  const float shift = to_float(x[0]);
  Pack<T, N> packs[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) packs[p] = read<N>(kWhole, x, column_of(p), cols);
  float sum[1] = {0}, sums[2] = {0, 0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float unwanted = 0;
    if (column_of(p) < cols) add_distances(kWhole, packs[p], shift, 0, cols, sum[0], unwanted);
  }
  row_sums(sum, first);
  const float mean = shift + sum[0] / static_cast<float>(cols);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column_of(p) < cols) add_distances(kWhole, packs[p], mean, 0, cols, sums[0], sums[1]);
  }
  row_sums(sums, second);
  if (!live) return;
  const LayerStatistics found = statistics_of(args, x, mean, sums);
  const Standardize standardize = Standardize::of(found.mean, found.rest, found.rstd);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float factors[N], added[N];
    read_weight<T>(kWhole, weight, column_of(p), cols, 1, factors);
    read_weight<T>(kWhole, bias, column_of(p), cols, 0, added);
    write(kWhole, args.y + row * args.cols, column_of(p), cols,
          scaled(packs[p], standardize, factors, added));
  }
  if (threadIdx.x == 0) save(args, row, found);
}

// As above, for rows of any length, and of any place in memory: terms are added in the same order.
template <typename T>
__global__ void __launch_bounds__(kLayerThreads, 1)
    layer_in_passes(const LayerRows<T> args, const AnyWeight weight, const AnyWeight bias,
                    bool whole) {
  constexpr int N = kLanes<T>;
  __shared__ RowPartials<1> first;
  __shared__ RowPartials<2> second;
  const int64_t index = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = index < args.rows;
  const int64_t row = live ? index : args.rows - 1;
  const T* x = args.x + row * args.x_stride;
  const int64_t begin = int64_t{threadIdx.x} * N, step = int64_t{blockDim.x} * N;

  const float shift = to_float(x[0]);
  float sum[1] = {0}, sums[2] = {0, 0}, unwanted = 0;
#pragma unroll 1
  for (int64_t c = begin; c < args.cols; c += step) {
    add_distances(whole, read<N>(whole, x, c, args.cols), shift, c, args.cols, sum[0], unwanted);
  }
  row_sums(sum, first);
  const float mean = shift + sum[0] / static_cast<float>(args.cols);
#pragma unroll 1
  for (int64_t c = begin; c < args.cols; c += step) {
    add_distances(whole, read<N>(whole, x, c, args.cols), mean, c, args.cols, sums[0], sums[1]);
  }
  row_sums(sums, second);
  if (!live) return;
  const LayerStatistics found = statistics_of(args, x, mean, sums);
  const Standardize standardize = Standardize::of(found.mean, found.rest, found.rstd);
#pragma unroll 1
  for (int64_t c = begin; c < args.cols; c += step) {
    float factors[N], added[N];
    read_weight<T>(whole, weight, c, args.cols, 1, factors);
    read_weight<T>(whole, bias, c, args.cols, 0, added);
    write(whole, args.y + row * args.cols, c, args.cols,
          scaled(read<N>(whole, x, c, args.cols), standardize, factors, added));
  }
  if (threadIdx.x == 0) save(args, row, found);
}

}  // namespace hk
