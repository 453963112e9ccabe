// RMS norm over hk::Lanes. Each ISA file includes one lanes_*.h and then this header; the unnamed
// namespace keeps a tier's code out of the other tiers at link time.
#pragma once

#include "hk/loops.h"
#include "hk/norm.h"
#include "rms_norm.h"

namespace hk {
namespace {

// Rows whose statistics are computed before the first of them is written, while they fit in L1:
// 1024x256 bf16 48 -> 26 us on one thread; two rows 32, eight 27; rows of 8 KB lose (23 -> 25).
constexpr int64_t kForwardGroup = 4;
constexpr int64_t kForwardRowBytes = 4096;

// Rows whose means are computed before the first of them is written, while x and grad fit in L2.
// From the second size on they share one read and write of the dweight sums; shorter rows lose by
// that (131072x128 fp32 3998 -> 4640 us).
constexpr int64_t kBackwardGroup = 4;
constexpr int64_t kBackwardMaxRowBytes = 64 << 10;
constexpr int64_t kBackwardMinRowBytes = 4096;

// Of columns [begin, end), at most kSumColumns of them.
template <typename T>
inline float sum_squares(const T* x, int64_t begin, int64_t end) {
  constexpr int64_t kStep = 4 * kLanes;
  constexpr int64_t kAhead = kSumAheadBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  Lanes acc[4] = {splat(0), splat(0), splat(0), splat(0)};
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) {
    if (c + kAhead + kStep <= end) {
      for (int64_t k = 0; k < kStep; k += kLine) prefetch(x + c + kAhead + k);
    }
    for (int k = 0; k < 4; ++k) {
      const Lanes v = load(x + c + k * kLanes);
      acc[k] = acc[k] + v * v;
    }
  }
  for (; c < end; c += kLanes) {
    const Lanes v = load(x + c, smaller(kLanes, end - c));
    acc[0] = acc[0] + v * v;
  }
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

template <typename T>
inline double sum_squares(const T* x, int64_t cols) {
  if (cols <= kSumColumns) return static_cast<double>(sum_squares(x, 0, cols));
  double total = 0;
  for (int64_t c = 0; c < cols; c += kSumColumns) {
    total += static_cast<double>(sum_squares(x, c, smaller(cols, c + kSumColumns)));
  }
  return total;
}

// In double, where no square of a float overflows or vanishes.
template <typename T>
[[gnu::noinline]] double wide_sum_squares(const T* x, int64_t cols) {
  double total = 0;
  for (int64_t c = 0; c < cols; ++c) {
    T one[kLanes] = {x[c]};
    float wide[kLanes];
    store(wide, load(one));
    total += static_cast<double>(wide[0]) * static_cast<double>(wide[0]);
  }
  return total;
}

template <typename T>
inline float inverse_rms(const T* x, int64_t cols, double eps) {
  const double count = static_cast<double>(cols);
  double radicand = sum_squares(x, cols) / count + eps;
  // Float squares overflow from 1.8e19 on; below 1e-30 those that vanished would count.
  const bool in_range = radicand > 1e-30 && radicand < __builtin_inf();
  if (__builtin_expect(!in_range, false)) radicand = wide_sum_squares(x, cols) / count + eps;
  return static_cast<float>(1.0 / __builtin_sqrt(radicand));
}

template <typename T>
inline void scale_row(const T* x, const T* ahead, const float* weight, float rstd, T* y,
                      int64_t cols, bool streamed) {
  const Lanes scale = splat(rstd);
  const auto touch = [&](int64_t c) { prefetch(ahead + c); };
  const auto tail = [&](int64_t c, int64_t live) {
    store(y + c, load(x + c, live) * scale * load(weight + c, live), live);
  };
  const auto value = [&](int64_t c) { return load(x + c) * scale * load(weight + c); };
  if (streamed) {
    for_lines<T>(cols, touch, [&](int64_t c) { stream(y + c, value(c)); }, tail);
  } else {
    for_lines<T>(cols, touch, [&](int64_t c) { store(y + c, value(c)); }, tail);
  }
}

// Statistics of a group of rows come before the group is written: the latency of one row's sum and
// root then hides behind the others.
template <typename T>
void forward_rows(const RmsNormForward& args, int64_t begin, int64_t end) {
  const auto row = [&](int64_t r) { return static_cast<const T*>(args.x) + r * args.x_stride; };
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const int64_t group = row_bytes <= kForwardRowBytes ? kForwardGroup : 1;
  const int64_t ahead = rows_ahead<T>(args.cols, group);
  for (int64_t first = begin; first < end; first += group) {
    const int64_t last = smaller(end, first + group);
    for (int64_t r = first; r < last; ++r) {
      args.rstd[r] = inverse_rms(row(r), args.cols, args.eps);
    }
    for (int64_t r = first; r < last; ++r) {
      T* y = static_cast<T*>(args.y) + r * args.cols;
      scale_row(row(r), row(smaller(r + ahead, end - 1)), args.weight, args.rstd[r], y, args.cols,
                args.stream && can_stream(y));
    }
  }
  if (args.stream) finish_streams();
}

// Pass 1 of `Rows` rows, columns [begin, end): adds grad * n * weight to dot, and grad * n to
// dweight when it is wanted.
template <typename T, int Rows, bool WantWeight>
inline void add_dots(const RmsNormBackward& args, int64_t row, int64_t begin, int64_t end,
                     float* dweight, double* dot) {
  const T* x[Rows];
  const T* grad[Rows];
  Lanes rstd[Rows], acc[Rows];
  for (int r = 0; r < Rows; ++r) {
    x[r] = static_cast<const T*>(args.x) + (row + r) * args.x_stride;
    grad[r] = static_cast<const T*>(args.grad) + (row + r) * args.grad_stride;
    rstd[r] = splat(args.rstd[row + r]);
    acc[r] = splat(0);
  }
  const auto step = [&](auto load_at, auto store_at) {
    const Lanes weight = load_at(args.weight);
    Lanes term[Rows];
    for (int r = 0; r < Rows; ++r) {
      term[r] = load_at(grad[r]) * (load_at(x[r]) * rstd[r]);
      acc[r] = acc[r] + term[r] * weight;
    }
    if constexpr (WantWeight) {
      for (int half = Rows / 2; half > 0; half /= 2) {
        for (int r = 0; r < half; ++r) term[r] = term[r] + term[r + half];
      }
      store_at(dweight, load_at(static_cast<const float*>(dweight)) + term[0]);
    }
  };
  for_lanes(
      begin, end,
      [&](int64_t c) {
        step([c](const auto* p) { return load(p + c); },
             [c](float* p, const Lanes& v) { store(p + c, v); });
      },
      [&](int64_t c, int64_t live) {
        step([=](const auto* p) { return load(p + c, live); },
             [=](float* p, const Lanes& v) { store(p + c, v, live); });
      });
  for (int r = 0; r < Rows; ++r) dot[r] += static_cast<double>(sum(acc[r]));
}

// Pass 2 of one row. One at a time: the streams of four interleaved rows cost 1.3 to 1.5 times.
template <typename T>
inline void grad_row(const RmsNormBackward& args, int64_t row, int64_t ahead, float row_mean) {
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const T* grad = static_cast<const T*>(args.grad) + row * args.grad_stride;
  const int64_t later = smaller(ahead, args.rows - 1 - row);
  const T* x_ahead = x + later * args.x_stride;
  const T* grad_ahead = grad + later * args.grad_stride;
  const float* weight = args.weight;
  T* dx = static_cast<T*>(args.dx) + row * args.cols;
  const Lanes scale = splat(args.rstd[row]), mean = splat(row_mean);
  const auto touch = [&](int64_t c) {
    prefetch(x_ahead + c);
    prefetch(grad_ahead + c);
  };
  const auto tail = [&](int64_t c, int64_t live) {
    const Lanes n = load(x + c, live) * scale;
    store(dx + c, scale * (load(grad + c, live) * load(weight + c, live) - n * mean), live);
  };
  const auto value = [&](int64_t c) {
    const Lanes n = load(x + c) * scale;
    return scale * (load(grad + c) * load(weight + c) - n * mean);
  };
  if (args.stream && can_stream(dx)) {
    for_lines<T>(args.cols, touch, [&](int64_t c) { stream(dx + c, value(c)); }, tail);
  } else {
    for_lines<T>(args.cols, touch, [&](int64_t c) { store(dx + c, value(c)); }, tail);
  }
}

// Both passes of `count` rows, at most kBackwardGroup. Pass 1 takes `Together` of them at a time.
template <typename T, int Together, bool WantWeight>
inline void backward_group(const RmsNormBackward& args, int64_t row, int64_t count,
                           float* dweight) {
  double dot[kBackwardGroup] = {};
  for (int64_t r = 0; r < count; r += Together) {
    for (int64_t c = 0; c < args.cols; c += kSumColumns) {
      const int64_t end = smaller(args.cols, c + kSumColumns);
      add_dots<T, Together, WantWeight>(args, row + r, c, end, dweight, dot + r);
    }
  }
  if (args.dx == nullptr) return;
  const int64_t ahead = rows_ahead<T>(args.cols, count);
  for (int64_t r = 0; r < count; ++r) {
    const double mean = dot[r] / static_cast<double>(args.cols);
    grad_row<T>(args, row + r, ahead, static_cast<float>(mean));
  }
}

template <typename T, bool WantWeight>
void backward_run(const RmsNormBackward& args, int64_t begin, int64_t end, float* dweight) {
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const int64_t group = row_bytes <= kBackwardMaxRowBytes ? kBackwardGroup : 1;
  const bool together = group > 1 && row_bytes >= kBackwardMinRowBytes;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t count = smaller(group, end - row);
    if (together && count == kBackwardGroup) {
      backward_group<T, kBackwardGroup, WantWeight>(args, row, count, dweight);
    } else {
      backward_group<T, 1, WantWeight>(args, row, count, dweight);
    }
  }
}

// dweight of a block: runs of rows are summed apart, then added up.
template <typename T>
void backward_block(const RmsNormBackward& args, int64_t block) {
  const int64_t begin = block * args.rows_per_block;
  const int64_t end = smaller(args.rows, begin + args.rows_per_block);
  if (args.partial == nullptr) return backward_run<T, false>(args, begin, end, nullptr);

  float* total = args.partial + block * args.cols;
  float* run = total + args.blocks * args.cols;
  const auto body = [&](int64_t first, int64_t last, float* to) {
    backward_run<T, true>(args, first, last, to);
  };
  sum_in_runs(begin, end, total, run, args.cols, body);
}

template <typename T>
void backward_blocks(const RmsNormBackward& args, int64_t begin, int64_t end) {
  for (int64_t block = begin; block < end; ++block) backward_block<T>(args, block);
  if (args.stream) finish_streams();
}

void widen_weight(DType dtype, const void* from, float offset, float* to, int64_t cols) {
  with_type(dtype,
            [&]<typename T>(T*) { widen_row(static_cast<const T*>(from), offset, to, cols); });
}

void forward(const RmsNormForward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) { forward_rows<T>(args, begin, end); });
}

void backward(const RmsNormBackward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) { backward_blocks<T>(args, begin, end); });
}

void sum_blocks(const RmsNormBackward& args, DType dtype, void* dweight, int64_t begin,
                int64_t end) {
  with_type(dtype, [&]<typename T>(T*) {
    sum_pairwise(args.partial, args.blocks, args.cols, static_cast<T*>(dweight), begin, end);
  });
}

constexpr RmsNormKernels kKernels = {widen_weight, forward, backward, sum_blocks};

}  // namespace
}  // namespace hk
