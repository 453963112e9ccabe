// RMS norm, with and without a residual, over hk::Lanes. kernels.h includes this header; the
// unnamed namespace keeps a tier's code out of the other tiers at link time.
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

// Sixteen columns from c on: how a row is read there, and written.
struct Whole {
  int64_t c;
  template <typename T>
  Lanes operator()(const T* row) const {
    return load(row + c);
  }
  template <typename T>
  void put(T* row, const Lanes& v) const {
    store(row + c, v);
  }
};

// As Whole, but written around the caches.
struct Around {
  int64_t c;
  template <typename T>
  Lanes operator()(const T* row) const {
    return load(row + c);
  }
  template <typename T>
  void put(T* row, const Lanes& v) const {
    stream(row + c, v);
  }
};

// The first `live` of them: zero in the other lanes.
struct Part {
  int64_t c, live;
  template <typename T>
  Lanes operator()(const T* row) const {
    return load(row + c, live);
  }
  template <typename T>
  void put(T* row, const Lanes& v) const {
    store(row + c, v, live);
  }
};

// Calls body with each place of a row, and touch(column) once a cache line of T.
template <typename T, typename Touch, typename Body>
inline void for_row(int64_t cols, bool streamed, Touch touch, Body body) {
  const auto tail = [&](int64_t c, int64_t live) { body(Part{c, live}); };
  if (streamed) {
    for_lines<T>(cols, touch, [&](int64_t c) { body(Around{c}); }, tail);
  } else {
    for_lines<T>(cols, touch, [&](int64_t c) { body(Whole{c}); }, tail);
  }
}

// A source is what is normalized of one row: source(place) computes it, touch(column) prefetches
// what that reads. One is x as it stands.
template <typename T>
struct Plain {
  const T* x;
  template <typename Place>
  Lanes operator()(const Place& at) const {
    return at(x);
  }
  void touch(int64_t c) const { prefetch(x + c); }
};

template <typename T>
struct Sum {
  const T* x;
  const T* residual;
  template <typename Place>
  Lanes operator()(const Place& at) const {
    return rounded(at(x) + at(residual), x);
  }
  void touch(int64_t c) const {
    prefetch(x + c);
    prefetch(residual + c);
  }
};

// Of columns [begin, end), at most kSumColumns of them. T: what the source reads.
template <typename T, typename Source>
inline float sum_squares(const Source& source, int64_t begin, int64_t end) {
  constexpr int64_t kStep = 4 * kLanes;
  constexpr int64_t kAhead = kSumAheadBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  Lanes acc[4] = {splat(0), splat(0), splat(0), splat(0)};
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) {
    if (c + kAhead + kStep <= end) {
      for (int64_t k = 0; k < kStep; k += kLine) source.touch(c + kAhead + k);
    }
    for (int k = 0; k < 4; ++k) {
      const Lanes v = source(Whole{c + k * kLanes});
      acc[k] = acc[k] + v * v;
    }
  }
  for (; c < end; c += kLanes) {
    const Lanes v = source(Part{c, smaller(kLanes, end - c)});
    acc[0] = acc[0] + v * v;
  }
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

template <typename T, typename Source>
inline double sum_squares(const Source& source, int64_t cols) {
  if (cols <= kSumColumns) return static_cast<double>(sum_squares<T>(source, 0, cols));
  double total = 0;
  for (int64_t c = 0; c < cols; c += kSumColumns) {
    total += static_cast<double>(sum_squares<T>(source, c, smaller(cols, c + kSumColumns)));
  }
  return total;
}

// In double, where no square of a float overflows or vanishes.
template <typename Source>
[[gnu::noinline]] double wide_sum_squares(const Source& source, int64_t cols) {
  double total = 0;
  for (int64_t c = 0; c < cols; ++c) {
    float wide[kLanes];
    store(wide, source(Part{c, 1}));
    total += static_cast<double>(wide[0]) * static_cast<double>(wide[0]);
  }
  return total;
}

template <typename T, typename Source>
inline float inverse_rms(const Source& source, int64_t cols, double eps) {
  const double count = static_cast<double>(cols);
  double radicand = sum_squares<T>(source, cols) / count + eps;
  // Float squares overflow from 1.8e19 on; below 1e-30 those that vanished would count.
  const bool in_range = radicand > 1e-30 && radicand < __builtin_inf();
  if (__builtin_expect(!in_range, false)) radicand = wide_sum_squares(source, cols) / count + eps;
  return static_cast<float>(1.0 / __builtin_sqrt(radicand));
}

// Statistics of a group of rows come before the group is written: the latency of one row's sum and
// root then hides behind the others. write(row, ahead, rstd): the row to prefetch is `ahead`.
template <typename T, typename SourceOf, typename Write>
inline void for_groups(int64_t cols, double eps, float* rstd, int64_t begin, int64_t end,
                       int64_t row_bytes, SourceOf source_of, Write write) {
  const int64_t group = row_bytes <= kForwardRowBytes ? kForwardGroup : 1;
  const int64_t ahead = rows_ahead<T>(cols, group);
  float scale[kForwardGroup];
  for (int64_t first = begin; first < end; first += group) {
    const int64_t last = smaller(end, first + group);
    for (int64_t r = first; r < last; ++r) {
      scale[r - first] = inverse_rms<T>(source_of(r), cols, eps);
      if (rstd != nullptr) rstd[r] = scale[r - first];
    }
    for (int64_t r = first; r < last; ++r) {
      write(r, smaller(r + ahead, end - 1), scale[r - first]);
    }
  }
}

template <typename T>
void forward_rows(const RmsNormForward& args, int64_t begin, int64_t end) {
  const auto source_of = [&](int64_t r) {
    return Plain<T>{static_cast<const T*>(args.x) + r * args.x_stride};
  };
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const auto write = [&](int64_t r, int64_t later, float rstd) {
    T* y = static_cast<T*>(args.y) + r * args.y_stride;
    const float* weight = args.weight;
    const Plain<T> source = source_of(r), ahead = source_of(later);
    const Lanes scale = splat(rstd);
    for_row<T>(
        args.cols, args.stream && can_stream(y), [&](int64_t c) { ahead.touch(c); },
        [&](auto at) { at.put(y, source(at) * scale * at(weight)); });
  };
  for_groups<T>(args.cols, args.eps, args.rstd, begin, end, row_bytes, source_of, write);
  if (args.stream) finish_streams();
}

// The sum is computed twice, from x and residual in cache: so it is written once, around the caches
// where that pays.
template <typename T>
void add_forward_rows(const RmsNormForward& args, int64_t begin, int64_t end) {
  const auto source_of = [&](int64_t r) {
    return Sum<T>{static_cast<const T*>(args.x) + r * args.x_stride,
                  static_cast<const T*>(args.residual) + r * args.residual_stride};
  };
  const int64_t row_bytes = 2 * args.cols * static_cast<int64_t>(sizeof(T));
  const auto write = [&](int64_t r, int64_t later, float rstd) {
    T* y = static_cast<T*>(args.y) + r * args.y_stride;
    T* summed = static_cast<T*>(args.summed) + r * args.summed_stride;
    const float* weight = args.weight;
    const Sum<T> source = source_of(r), ahead = source_of(later);
    const Lanes scale = splat(rstd);
    for_row<T>(
        args.cols, args.stream && can_stream(y) && can_stream(summed),
        [&](int64_t c) { ahead.touch(c); },
        [&](auto at) {
          const Lanes v = source(at);
          const Lanes normed = v * scale * at(weight);
          at.put(summed, v);
          at.put(y, normed);
        });
  };
  for_groups<T>(args.cols, args.eps, args.rstd, begin, end, row_bytes, source_of, write);
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
template <typename T, bool WithSummed>
inline void grad_row(const RmsNormBackward& args, int64_t row, int64_t ahead, float row_mean) {
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const T* grad = static_cast<const T*>(args.grad) + row * args.grad_stride;
  const T* grad_summed = nullptr;
  if constexpr (WithSummed) {
    grad_summed = static_cast<const T*>(args.grad_summed) + row * args.grad_summed_stride;
  }
  const int64_t later = smaller(ahead, args.sums.rows - 1 - row);
  const T* x_ahead = x + later * args.x_stride;
  const T* grad_ahead = grad + later * args.grad_stride;
  const float* weight = args.weight;
  T* dx = static_cast<T*>(args.dx) + row * args.sums.cols;
  const Lanes scale = splat(args.rstd[row]), mean = splat(row_mean);
  const auto touch = [&](int64_t c) {
    prefetch(x_ahead + c);
    prefetch(grad_ahead + c);
    if constexpr (WithSummed) prefetch(grad_summed + later * args.grad_summed_stride + c);
  };
  const auto body = [&](auto at) {
    const Lanes n = at(x) * scale;
    const Lanes value = scale * (at(grad) * at(weight) - n * mean);
    if constexpr (WithSummed) {
      at.put(dx, value + at(grad_summed));
    } else {
      at.put(dx, value);
    }
  };
  for_row<T>(args.sums.cols, args.stream && can_stream(dx), touch, body);
}

// Both passes of `count` rows, at most kBackwardGroup. Pass 1 takes `Together` of them at a time.
template <typename T, int Together, bool WantWeight>
inline void backward_group(const RmsNormBackward& args, int64_t row, int64_t count,
                           float* dweight) {
  double dot[kBackwardGroup] = {};
  for (int64_t r = 0; r < count; r += Together) {
    for (int64_t c = 0; c < args.sums.cols; c += kSumColumns) {
      const int64_t end = smaller(args.sums.cols, c + kSumColumns);
      add_dots<T, Together, WantWeight>(args, row + r, c, end, dweight, dot + r);
    }
  }
  if (args.dx == nullptr) return;
  const int64_t ahead = rows_ahead<T>(args.sums.cols, count);
  for (int64_t r = 0; r < count; ++r) {
    const float mean = static_cast<float>(dot[r] / static_cast<double>(args.sums.cols));
    if (args.grad_summed == nullptr) {
      grad_row<T, false>(args, row + r, ahead, mean);
    } else {
      grad_row<T, true>(args, row + r, ahead, mean);
    }
  }
}

template <typename T, bool WantWeight>
void backward_run(const RmsNormBackward& args, int64_t begin, int64_t end, float* dweight) {
  const int64_t row_bytes = args.sums.cols * static_cast<int64_t>(sizeof(T));
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

// dweight of a block: runs of rows are summed apart, then added up. run(begin, end, dweight) does
// the rows, and run(begin, end, nullptr) where dweight is not wanted.
template <typename Run>
inline void for_runs(const WeightSums& sums, int64_t block, Run run) {
  const int64_t begin = block * sums.rows_per_block;
  const int64_t end = smaller(sums.rows, begin + sums.rows_per_block);
  if (sums.partial == nullptr) return run(begin, end, nullptr);

  float* total = sums.partial + block * sums.cols;
  sum_in_runs(begin, end, total, total + sums.blocks * sums.cols, sums.cols, run);
}

template <typename T>
void backward_blocks(const RmsNormBackward& args, int64_t begin, int64_t end) {
  const auto run = [&](int64_t first, int64_t last, float* dweight) {
    if (dweight == nullptr) {
      backward_run<T, false>(args, first, last, nullptr);
    } else {
      backward_run<T, true>(args, first, last, dweight);
    }
  };
  for (int64_t block = begin; block < end; ++block) for_runs(args.sums, block, run);
  if (args.stream) finish_streams();
}

}  // namespace
}  // namespace hk
