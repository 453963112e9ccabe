// RMS norm with a gate over hk::Lanes. kernels.h includes this header; the unnamed namespace keeps
// a tier's code out of the other tiers at link time.
#pragma once

#include "hk/math.h"
#include "rows.h"

namespace hk {
namespace {

// x * silu(gate), kept as it is computed: a second silu would cost more than a read from L1.
template <typename T>
struct Gated {
  const T* x;
  const T* gate;
  float* product;
  template <typename Place>
  Lanes operator()(const Place& at) const {
    const Lanes v = at(x) * silu(at(gate)).value;
    at.put(product, v);
    return v;
  }
  void touch(int64_t c) const {
    prefetch(x + c);
    prefetch(gate + c);
  }
};

template <typename T>
inline Gated<T> gated_row(const GatedRmsNormForward& args, int64_t row, float* product) {
  return {static_cast<const T*>(args.x) + row * args.x_stride,
          static_cast<const T*>(args.gate) + row * args.gate_stride, product};
}

// y = norm(x * silu(gate)) * weight
template <typename T>
void gate_norm_rows(const GatedRmsNormForward& args, float* product, int64_t begin, int64_t end) {
  const float* weight = args.weight;
  const int64_t ahead = rows_ahead<T>(args.cols, 1);
  for (int64_t row = begin; row < end; ++row) {
    T* y = static_cast<T*>(args.y) + row * args.cols;
    const Gated<T> later = gated_row<T>(args, smaller(row + ahead, end - 1), nullptr);
    args.rstd[row] = inverse_rms<T>(gated_row<T>(args, row, product), args.cols, args.eps);
    const Lanes scale = splat(args.rstd[row]);
    for_row<T>(
        args.cols, args.stream && can_stream(y), [&](int64_t c) { later.touch(c); },
        [&](auto at) { at.put(y, at(product) * scale * at(weight)); });
  }
  if (args.stream) finish_streams();
}

// y = norm(x) * weight * silu(gate)
template <typename T>
void norm_gate_rows(const GatedRmsNormForward& args, int64_t begin, int64_t end) {
  const auto source_of = [&](int64_t r) {
    return Plain<T>{static_cast<const T*>(args.x) + r * args.x_stride};
  };
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const auto write = [&](int64_t r, int64_t ahead, float rstd) {
    T* y = static_cast<T*>(args.y) + r * args.cols;
    const float* weight = args.weight;
    const Gated<T> row = gated_row<T>(args, r, nullptr), later = gated_row<T>(args, ahead, nullptr);
    const Lanes scale = splat(rstd);
    for_row<T>(
        args.cols, args.stream && can_stream(y), [&](int64_t c) { later.touch(c); },
        [&](auto at) { at.put(y, at(row.x) * scale * at(weight) * silu(at(row.gate)).value); });
  };
  for_groups<T>(args.cols, args.eps, args.rstd, begin, end, row_bytes, source_of, write);
  if (args.stream) finish_streams();
}

// One row of the backward. Its two scratch rows hold what the second pass needs of the gate.
template <typename T>
struct GatedRow {
  const T* grad;
  const T* x;
  const T* gate;
  float* silus;  // silu(gate)
  float* bends;  // the derivative of dx (or of y) by the gate, as far as it is known
};

// Pass 1, columns [begin, end): the sum of grad * weight * n, where n is normalized; and what it
// adds to dweight, when that is wanted.
template <typename T, bool NormFirst, bool WantWeight>
inline float gated_dot(const GatedRow<T>& row, const float* weight, float rstd, int64_t begin,
                       int64_t end, float* dweight) {
  const Lanes scale = splat(rstd);
  Lanes acc = splat(0);
  const auto step = [&](auto at) {
    const WithSlope gate = silu(at(row.gate));
    const Lanes x = at(row.x), grad = at(row.grad), w = at(weight);
    Lanes term;
    if constexpr (NormFirst) {
      const Lanes n = grad * (x * scale);
      term = n * gate.value;
      at.put(row.bends, n * w * gate.slope);
    } else {
      term = grad * (x * gate.value * scale);
      at.put(row.bends, x * gate.slope);
    }
    at.put(row.silus, gate.value);
    acc = acc + term * w;
    if constexpr (WantWeight) at.put(dweight, at(static_cast<const float*>(dweight)) + term);
  };
  for_lanes(
      begin, end, [&](int64_t c) { step(Whole{c}); },
      [&](int64_t c, int64_t live) { step(Part{c, live}); });
  return sum(acc);
}

// Pass 2, one output at a time: from its own stream a row is written faster.
template <typename T, bool NormFirst>
inline void gated_grad_row(const GatedRmsNormBackward& args, const GatedRow<T>& row, int64_t index,
                           int64_t ahead, float row_mean) {
  const int64_t cols = args.sums.cols;
  const int64_t later = smaller(ahead, args.sums.rows - 1 - index);
  const float* weight = args.weight;
  const Lanes scale = splat(args.rstd[index]), mean = splat(row_mean);
  const auto inner = [&](auto at) {  // the gradient of x * silu(gate)
    const Lanes n = at(row.x) * at(row.silus) * scale;
    return scale * (at(row.grad) * at(weight) - n * mean);
  };
  const auto touch = [&](int64_t c) {
    prefetch(row.x + later * args.x_stride + c);
    prefetch(row.gate + later * args.gate_stride + c);
    prefetch(row.grad + later * args.grad_stride + c);
  };
  if (args.dx != nullptr) {
    T* dx = static_cast<T*>(args.dx) + index * cols;
    for_row<T>(cols, args.stream && can_stream(dx), touch, [&](auto at) {
      if constexpr (NormFirst) {
        const Lanes n = at(row.x) * scale;
        at.put(dx, scale * (at(row.grad) * at(weight) * at(row.silus) - n * mean));
      } else {
        at.put(dx, inner(at) * at(row.silus));
      }
    });
  }
  if (args.dgate != nullptr) {
    T* dgate = static_cast<T*>(args.dgate) + index * cols;
    for_row<T>(
        cols, args.stream && can_stream(dgate), [](int64_t) {},
        [&](auto at) {
          if constexpr (NormFirst) {
            at.put(dgate, at(row.bends));
          } else {
            at.put(dgate, inner(at) * at(row.bends));
          }
        });
  }
}

template <typename T, bool NormFirst>
void gated_backward_blocks(const GatedRmsNormBackward& args, float* scratch, int64_t begin,
                           int64_t end) {
  const int64_t cols = args.sums.cols;
  const int64_t ahead = rows_ahead<T>(cols, 1);
  const auto run = [&](int64_t first, int64_t last, float* dweight) {
    for (int64_t r = first; r < last; ++r) {
      const GatedRow<T> row = {static_cast<const T*>(args.grad) + r * args.grad_stride,
                               static_cast<const T*>(args.x) + r * args.x_stride,
                               static_cast<const T*>(args.gate) + r * args.gate_stride, scratch,
                               scratch + cols};
      double dot = 0;
      for (int64_t c = 0; c < cols; c += kSumColumns) {
        const int64_t stop = smaller(cols, c + kSumColumns);
        const float rstd = args.rstd[r];
        dot += static_cast<double>(
            dweight == nullptr
                ? gated_dot<T, NormFirst, false>(row, args.weight, rstd, c, stop, dweight)
                : gated_dot<T, NormFirst, true>(row, args.weight, rstd, c, stop, dweight));
      }
      const float mean = static_cast<float>(dot / static_cast<double>(cols));
      gated_grad_row<T, NormFirst>(args, row, r, ahead, mean);
    }
  };
  for (int64_t block = begin; block < end; ++block) for_runs(args.sums, block, run);
  if (args.stream) finish_streams();
}

}  // namespace
}  // namespace hk
