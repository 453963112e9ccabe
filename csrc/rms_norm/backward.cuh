// Gradients of the RMS norms, a vector at a time.
#pragma once

#include "hk/rows_backward.cuh"
#include "hk/silu.cuh"

namespace hk {

template <typename T>
struct RmsGradRows {
  const T* grad;
  int64_t grad_stride;
  const T* x;
  int64_t x_stride;
  const T* grad_summed;  // added to dx; null: nothing is
  int64_t grad_summed_stride;
  AnyWeight weight;
  const float* rstd;
  T* dx;  // null: not wanted
  int64_t rows;
  int64_t cols;
};

template <typename T>
struct RmsGrad {
  using Element = T;
  using Args = RmsGradRows<T>;
  static constexpr int kPacks = 2, kDots = 1, kColumnSums = 1;
  static constexpr int N = kLanes<T>;

  struct Values {
    Pack<T> grad, x, summed;
    float rstd;
  };

  template <typename Rows>
  __device__ static Values load(Rows whole, const Args& args, int64_t row, bool live,
                                int64_t column) {
    Values v;
    const int64_t cols = live ? args.cols : 0;
    v.grad = read<N>(whole, args.grad + row * args.grad_stride, column, cols);
    v.x = read<N>(whole, args.x + row * args.x_stride, column, cols);
    v.rstd = live ? args.rstd[row] : 0;
    return v;
  }

  template <typename Rows>
  __device__ static void load_late(Rows whole, const Args& args, int64_t row, bool live,
                                   int64_t column, Values& v) {
    if (args.grad_summed == nullptr) {
#pragma unroll
      for (int i = 0; i < N; ++i) v.summed.lane[i] = from_float<T>(-0.0f);  // changes no zero
    } else {
      v.summed = read<N>(whole, args.grad_summed + row * args.grad_summed_stride, column,
                         live ? args.cols : 0);
    }
  }

  template <typename Rows>
  __device__ static void reduce(Rows, const Args&, const Values& v, int64_t,
                                const float (&weight)[N], float (&dots)[1], float (&sums)[1][N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float grad = to_float(v.grad.lane[i]), n = product(to_float(v.x.lane[i]), v.rstd);
      dots[0] = fmaf(product(grad, weight[i]), n, dots[0]);
      sums[0][i] = fmaf(grad, n, sums[0][i]);
    }
  }

  template <typename Rows>
  __device__ static void write(Rows whole, const Args& args, int64_t row, int64_t column,
                               const Values& v, const float (&weight)[N], const float (&means)[1]) {
    if (args.dx == nullptr) return;
    Pack<T> dx;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float n = product(to_float(v.x.lane[i]), v.rstd);
      const float inner = fmaf(-n, means[0], product(to_float(v.grad.lane[i]), weight[i]));
      dx.lane[i] = from_float<T>(fmaf(v.rstd, inner, to_float(v.summed.lane[i])));
    }
    hk::write(whole, args.dx + row * args.cols, column, args.cols, dx);
  }
};

template <typename T>
struct GatedGradRows {
  const T* grad;
  int64_t grad_stride;
  const T* x;
  int64_t x_stride;
  const T* gate;
  int64_t gate_stride;
  AnyWeight weight;
  const float* rstd;
  T* dx;            // null: not wanted
  T* dgate;         // null: not wanted
  bool norm_first;  // the norm of x is multiplied by silu(gate); else x is, before it
  int64_t rows;
  int64_t cols;
};

template <typename T>
struct GatedGrad {
  using Element = T;
  using Args = GatedGradRows<T>;
  static constexpr int kPacks = 1, kDots = 1, kColumnSums = 1;
  static constexpr int N = kLanes<T>;

  struct Values {
    Pack<T> grad, x, gate;
    float rstd;
  };

  template <typename Rows>
  __device__ static Values load(Rows whole, const Args& args, int64_t row, bool live,
                                int64_t column) {
    Values v;
    const int64_t cols = live ? args.cols : 0;
    v.grad = read<N>(whole, args.grad + row * args.grad_stride, column, cols);
    v.x = read<N>(whole, args.x + row * args.x_stride, column, cols);
    v.gate = read<N>(whole, args.gate + row * args.gate_stride, column, cols);
    v.rstd = live ? args.rstd[row] : 0;
    return v;
  }

  template <typename Rows>
  __device__ static void load_late(Rows, const Args&, int64_t, bool, int64_t, Values&) {}

  template <typename Rows>
  __device__ static void reduce(Rows, const Args&, const Values& v, int64_t,
                                const float (&weight)[N], float (&dots)[1], float (&sums)[1][N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float gate = silu(to_float(v.gate.lane[i])).value;
      const float grad = to_float(v.grad.lane[i]);
      const float n = product(product(to_float(v.x.lane[i]), gate), v.rstd);
      dots[0] = fmaf(product(grad, weight[i]), n, dots[0]);
      sums[0][i] = fmaf(grad, n, sums[0][i]);
    }
  }

  template <typename Rows>
  __device__ static void write(Rows whole, const Args& args, int64_t row, int64_t column,
                               const Values& v, const float (&weight)[N], const float (&means)[1]) {
    Pack<T> dx, dgate;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const WithSlope gate = silu(to_float(v.gate.lane[i]));
      const float x = to_float(v.x.lane[i]);
      const float scaled = product(to_float(v.grad.lane[i]), weight[i]);
      if (args.norm_first) {
        const float n = product(x, v.rstd);
        const float inner = fmaf(scaled, gate.value, -product(n, means[0]));
        dx.lane[i] = from_float<T>(product(v.rstd, inner));
        dgate.lane[i] = from_float<T>(product(product(scaled, n), gate.slope));
      } else {
        const float n = product(product(x, gate.value), v.rstd);
        // The gradient of x * silu(gate).
        const float inner = product(v.rstd, fmaf(-n, means[0], scaled));
        dx.lane[i] = from_float<T>(product(inner, gate.value));
        dgate.lane[i] = from_float<T>(product(inner, product(x, gate.slope)));
      }
    }
    if (args.dx != nullptr) hk::write(whole, args.dx + row * args.cols, column, args.cols, dx);
    if (args.dgate != nullptr) {
      hk::write(whole, args.dgate + row * args.cols, column, args.cols, dgate);
    }
  }
};

}  // namespace hk
