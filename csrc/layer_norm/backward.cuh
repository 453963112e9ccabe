// Gradients of layer norm, a vector at a time.
#pragma once

#include "hk/rows_backward.cuh"
#include "layer_norm/standardize.cuh"

namespace hk {

template <typename T>
struct LayerGradRows {
  const T* grad;
  int64_t grad_stride;
  const T* x;
  int64_t x_stride;
  AnyWeight weight;
  const float* mean;
  const float* mean_rest;
  const float* rstd;
  T* dx;  // null: not wanted
  int64_t rows;
  int64_t cols;
};

template <typename T>
struct LayerGrad {
  using Element = T;
  using Args = LayerGradRows<T>;
  static constexpr int kPacks = 1, kDots = 2, kColumnSums = 2;
  static constexpr int N = kLanes<T>;

  struct Values {
    Pack<T> grad, x;
    float mean, rest, rstd;
  };

  template <typename Rows>
  __device__ static Values load(Rows whole, const Args& args, int64_t row, bool live,
                                int64_t column) {
    Values v;
    const int64_t cols = live ? args.cols : 0;
    v.grad = read<N>(whole, args.grad + row * args.grad_stride, column, cols);
    v.x = read<N>(whole, args.x + row * args.x_stride, column, cols);
    v.mean = live ? args.mean[row] : 0;
    v.rest = live ? args.mean_rest[row] : 0;
    v.rstd = live ? args.rstd[row] : 0;
    return v;
  }

  template <typename Rows>
  __device__ static void load_late(Rows, const Args&, int64_t, bool, int64_t, Values&) {}

  // Lanes behind the row would be far from its mean, and infinitely far from a huge one.
  template <typename Rows>
  __device__ static void reduce(Rows whole, const Args& args, const Values& v, int64_t column,
                                const float (&weight)[N], float (&dots)[2], float (&sums)[2][N]) {
    const Standardize standardize = Standardize::of(v.mean, v.rest, v.rstd);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (!whole && column + i >= args.cols) continue;
      const float grad = to_float(v.grad.lane[i]);
      const float n = standardize(to_float(v.x.lane[i])), g = product(grad, weight[i]);
      dots[0] += g;
      dots[1] = fmaf(g, n, dots[1]);
      sums[0][i] = fmaf(grad, n, sums[0][i]);
      sums[1][i] += grad;
    }
  }

  template <typename Rows>
  __device__ static void write(Rows whole, const Args& args, int64_t row, int64_t column,
                               const Values& v, const float (&weight)[N], const float (&means)[2]) {
    if (args.dx == nullptr) return;
    const Standardize standardize = Standardize::of(v.mean, v.rest, v.rstd);
    Pack<T> dx;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = product(to_float(v.grad.lane[i]), weight[i]);
      const float n = standardize(to_float(v.x.lane[i]));
      dx.lane[i] = from_float<T>(product(v.rstd, fmaf(-n, means[1], g - means[0])));
    }
    hk::write(whole, args.dx + row * args.cols, column, args.cols, dx);
  }
};

}  // namespace hk
