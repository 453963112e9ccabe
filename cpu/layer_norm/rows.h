// Layer norm over hk::Lanes. Each ISA file includes one lanes_*.h and then this header; the unnamed
// namespace keeps a tier's code out of the other tiers at link time.
#pragma once

#include "hk/loops.h"
#include "hk/norm.h"
#include "layer_norm.h"

namespace hk {
namespace {

// Rows whose statistics are computed before the first of them is written, while they fit in L1, and
// step by step rather than row by row: 8192x96 fp32 280 -> 236 us, 2048x256 bf16 107 -> 98 (one
// thread of Zen 5).
constexpr int64_t kForwardGroup = 4;
constexpr int64_t kForwardRowBytes = 4096;

// Rows whose means are computed before the first of them is written, while x and grad fit in L2.
// From the second size on they share one read and write of the sums over rows; at 512 bytes a row
// that is neither gain nor loss.
constexpr int64_t kBackwardGroup = 4;
constexpr int64_t kBackwardMaxRowBytes = 64 << 10;
constexpr int64_t kBackwardMinRowBytes = 4096;

// Sums of d and d * d over columns, d = x - shift.
struct ShiftedSums {
  double first, second;
};

struct Moments {
  double mean, variance;
};

// Of columns [begin, end), at most kSumColumns of them.
template <typename T>
inline ShiftedSums shifted_sums(const T* x, float shift, int64_t begin, int64_t end) {
  constexpr int64_t kStep = 4 * kLanes;
  constexpr int64_t kAhead = kSumAheadBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  const Lanes origin = splat(shift);
  Lanes first[4] = {splat(0), splat(0), splat(0), splat(0)};
  Lanes second[4] = {splat(0), splat(0), splat(0), splat(0)};
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) {
    if (c + kAhead + kStep <= end) {
      for (int64_t k = 0; k < kStep; k += kLine) prefetch(x + c + kAhead + k);
    }
    for (int k = 0; k < 4; ++k) {
      const Lanes d = load(x + c + k * kLanes) - origin;
      first[k] = first[k] + d;
      second[k] = second[k] + d * d;
    }
  }
  float origins[kLanes];  // lanes that are not live add zero
  store(origins, origin);
  for (; c < end; c += kLanes) {
    const int64_t live = smaller(kLanes, end - c);
    const Lanes d = load(x + c, live) - load(origins, live);
    first[0] = first[0] + d;
    second[0] = second[0] + d * d;
  }
  return {static_cast<double>(sum((first[0] + first[1]) + (first[2] + first[3]))),
          static_cast<double>(sum((second[0] + second[1]) + (second[2] + second[3])))};
}

template <typename T>
inline Moments moments_around(const T* x, float shift, int64_t cols) {
  ShiftedSums total = {0, 0};
  for (int64_t c = 0; c < cols; c += kSumColumns) {
    const ShiftedSums part = shifted_sums(x, shift, c, smaller(cols, c + kSumColumns));
    total = {total.first + part.first, total.second + part.second};
  }
  const double share = 1.0 / static_cast<double>(cols);
  const double first = total.first * share;
  return {static_cast<double>(shift) + first, total.second * share - first * first};
}

// In double, where no square of a float overflows or vanishes; exact for equal elements.
template <typename T>
[[gnu::noinline]] Moments wide_moments(const T* x, int64_t cols) {
  const auto element = [x](int64_t c) {
    T one[kLanes] = {x[c]};
    float wide[kLanes];
    store(wide, load(one));
    return static_cast<double>(wide[0]);
  };
  const double shift = element(0), count = static_cast<double>(cols);
  double first = 0, second = 0;
  for (int64_t c = 0; c < cols; ++c) first += element(c) - shift;
  const double mean = shift + first / count;
  for (int64_t c = 0; c < cols; ++c) {
    const double d = element(c) - mean;
    second += d * d;
  }
  return {mean, second / count};
}

template <typename T>
inline float mean_of_first(const T* x, int64_t cols) {
  const int64_t live = smaller(kLanes, cols);
  return sum(load(x, live)) / static_cast<float>(live);
}

// What a pass around `shift` found, or what a better one finds. Where the shift is more than a
// standard deviation from the mean, the variance has lost digits: a second pass, around the mean.
template <typename T>
inline Moments settled(const Moments& found, const T* x, float shift, int64_t cols, double eps) {
  const double away = found.mean - static_cast<double>(shift);
  const bool lost = away * away > found.variance;
  // Float squares overflow from 1.8e19 on; below 1e-30 those that vanished would count.
  const auto in_range = [eps](double variance) {
    return variance + eps > 1e-30 && variance + eps < __builtin_inf();
  };
  if (__builtin_expect(!lost && in_range(found.variance), true)) return found;
  const Moments again = moments_around(x, static_cast<float>(found.mean), cols);
  return in_range(again.variance) ? again : wide_moments(x, cols);
}

// Of rows [begin, end), at most kForwardGroup of them, one step after the other: the latency of one
// row's sums and roots hides behind the others.
template <typename T, typename Row>
inline void save_statistics(const LayerNormForward& args, int64_t begin, int64_t end, Row row) {
  float shift[kForwardGroup];
  Moments found[kForwardGroup];
  for (int64_t r = begin; r < end; ++r) shift[r - begin] = mean_of_first<T>(row(r), args.cols);
  for (int64_t r = begin; r < end; ++r) {
    found[r - begin] = moments_around<T>(row(r), shift[r - begin], args.cols);
  }
  for (int64_t r = begin; r < end; ++r) {
    const Moments of = settled<T>(found[r - begin], row(r), shift[r - begin], args.cols, args.eps);
    const float mean = static_cast<float>(of.mean);
    args.mean[r] = mean;
    args.mean_rest[r] = static_cast<float>(of.mean - static_cast<double>(mean));
    args.rstd[r] = static_cast<float>(1.0 / __builtin_sqrt(of.variance + args.eps));
  }
}

// (x - mean) * rstd. The difference of two floats overflows only where the mean is huge: there both
// are halved first.
struct Standardize {
  Lanes half, mean, rest, scale;

  Standardize() = default;
  Standardize(float row_mean, float row_rest, float rstd) {
    const float factor = __builtin_fabsf(row_mean) > 0x1p102f ? 0.5f : 1.0f;
    half = splat(factor);
    mean = splat(row_mean * factor);
    rest = splat(row_rest * factor);
    scale = splat(rstd / factor);
  }
  Lanes operator()(const Lanes& x) const { return ((x * half - mean) - rest) * scale; }

  // Zero in the lanes behind `live`: there x is zero, and from a huge mean that would be infinite.
  Standardize first(int64_t live) const {
    float scales[kLanes];
    store(scales, scale);
    Standardize some = *this;
    some.scale = load(static_cast<const float*>(scales), live);
    return some;
  }
};

template <typename T>
inline void write_row(const LayerNormForward& args, int64_t row, const T* x, const T* ahead) {
  const Standardize standardize(args.mean[row], args.mean_rest[row], args.rstd[row]);
  const float* weight = args.weight;
  const float* bias = args.bias;
  T* y = static_cast<T*>(args.y) + row * args.cols;
  const auto touch = [&](int64_t c) { prefetch(ahead + c); };
  const auto tail = [&](int64_t c, int64_t live) {
    const Lanes n = standardize(load(x + c, live));
    store(y + c, fma(n, load(weight + c, live), load(bias + c, live)), live);
  };
  const auto value = [&](int64_t c) {
    return fma(standardize(load(x + c)), load(weight + c), load(bias + c));
  };
  if (args.stream && can_stream(y)) {
    for_lines<T>(args.cols, touch, [&](int64_t c) { stream(y + c, value(c)); }, tail);
  } else {
    for_lines<T>(args.cols, touch, [&](int64_t c) { store(y + c, value(c)); }, tail);
  }
}

template <typename T>
void forward_rows(const LayerNormForward& args, int64_t begin, int64_t end) {
  const auto row = [&](int64_t r) { return static_cast<const T*>(args.x) + r * args.x_stride; };
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const int64_t group = row_bytes <= kForwardRowBytes ? kForwardGroup : 1;
  const int64_t ahead = rows_ahead<T>(args.cols, group);
  for (int64_t first = begin; first < end; first += group) {
    const int64_t last = smaller(end, first + group);
    save_statistics<T>(args, first, last, row);
    for (int64_t r = first; r < last; ++r) {
      write_row(args, r, row(r), row(smaller(r + ahead, end - 1)));
    }
  }
  if (args.stream) finish_streams();
}

// Sums of g = grad * weight and of g * n over the columns of a row.
struct GradSums {
  double plain, dot;
};

// Pass 1 of `Rows` rows, columns [begin, end): adds to the sums of each row; adds grad * n to
// dweight and grad to dbias where they are wanted.
template <typename T, int Rows, bool WantWeight, bool WantBias>
inline void add_sums(const LayerNormBackward& args, int64_t row, int64_t begin, int64_t end,
                     float* dweight, float* dbias, GradSums* sums) {
  const T* x[Rows];
  const T* grad[Rows];
  Standardize standardize[Rows];
  Lanes plain[Rows], dot[Rows];
  for (int r = 0; r < Rows; ++r) {
    x[r] = static_cast<const T*>(args.x) + (row + r) * args.x_stride;
    grad[r] = static_cast<const T*>(args.grad) + (row + r) * args.grad_stride;
    standardize[r] = {args.mean[row + r], args.mean_rest[row + r], args.rstd[row + r]};
    plain[r] = splat(0);
    dot[r] = splat(0);
  }
  const auto step = [&](auto load_at, auto store_at) {
    const Lanes weight = load_at(args.weight);
    Lanes by_weight[Rows], by_bias[Rows];
    for (int r = 0; r < Rows; ++r) {
      by_bias[r] = load_at(grad[r]);
      by_weight[r] = by_bias[r] * standardize[r](load_at(x[r]));
      plain[r] = plain[r] + by_bias[r] * weight;
      dot[r] = dot[r] + by_weight[r] * weight;
    }
    const auto add_rows = [&](float* to, Lanes* of_row) {
      for (int half = Rows / 2; half > 0; half /= 2) {
        for (int r = 0; r < half; ++r) of_row[r] = of_row[r] + of_row[r + half];
      }
      store_at(to, load_at(static_cast<const float*>(to)) + of_row[0]);
    };
    if constexpr (WantWeight) add_rows(dweight, by_weight);
    if constexpr (WantBias) add_rows(dbias, by_bias);
  };
  for_lanes(
      begin, end,
      [&](int64_t c) {
        step([c](const auto* p) { return load(p + c); },
             [c](float* p, const Lanes& v) { store(p + c, v); });
      },
      [&](int64_t c, int64_t live) {
        for (Standardize& of_row : standardize) of_row = of_row.first(live);
        step([=](const auto* p) { return load(p + c, live); },
             [=](float* p, const Lanes& v) { store(p + c, v, live); });
      });
  for (int r = 0; r < Rows; ++r) {
    sums[r].plain += static_cast<double>(sum(plain[r]));
    sums[r].dot += static_cast<double>(sum(dot[r]));
  }
}

// Pass 2 of one row.
template <typename T>
inline void grad_row(const LayerNormBackward& args, int64_t row, int64_t ahead,
                     const GradSums& sums) {
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const T* grad = static_cast<const T*>(args.grad) + row * args.grad_stride;
  const int64_t later = smaller(ahead, args.rows - 1 - row);
  const T* x_ahead = x + later * args.x_stride;
  const T* grad_ahead = grad + later * args.grad_stride;
  const float* weight = args.weight;
  T* dx = static_cast<T*>(args.dx) + row * args.cols;
  const Standardize standardize(args.mean[row], args.mean_rest[row], args.rstd[row]);
  const double count = static_cast<double>(args.cols);
  const Lanes plain = splat(static_cast<float>(sums.plain / count));
  const Lanes dot = splat(static_cast<float>(sums.dot / count));
  const Lanes scale = splat(args.rstd[row]);
  const auto touch = [&](int64_t c) {
    prefetch(x_ahead + c);
    prefetch(grad_ahead + c);
  };
  const auto of = [&](const Lanes& at_x, const Lanes& at_grad, const Lanes& at_weight) {
    return scale * ((at_grad * at_weight - plain) - standardize(at_x) * dot);
  };
  const auto tail = [&](int64_t c, int64_t live) {
    store(dx + c, of(load(x + c, live), load(grad + c, live), load(weight + c, live)), live);
  };
  const auto value = [&](int64_t c) { return of(load(x + c), load(grad + c), load(weight + c)); };
  if (args.stream && can_stream(dx)) {
    for_lines<T>(args.cols, touch, [&](int64_t c) { stream(dx + c, value(c)); }, tail);
  } else {
    for_lines<T>(args.cols, touch, [&](int64_t c) { store(dx + c, value(c)); }, tail);
  }
}

// Both passes of `count` rows, at most kBackwardGroup. Pass 1 takes `Together` of them at a time.
template <typename T, int Together, bool WantWeight, bool WantBias>
inline void backward_group(const LayerNormBackward& args, int64_t row, int64_t count,
                           float* dweight, float* dbias) {
  GradSums sums[kBackwardGroup] = {};
  for (int64_t r = 0; r < count; r += Together) {
    for (int64_t c = 0; c < args.cols; c += kSumColumns) {
      const int64_t end = smaller(args.cols, c + kSumColumns);
      add_sums<T, Together, WantWeight, WantBias>(args, row + r, c, end, dweight, dbias, sums + r);
    }
  }
  if (args.dx == nullptr) return;
  const int64_t ahead = rows_ahead<T>(args.cols, count);
  for (int64_t r = 0; r < count; ++r) grad_row<T>(args, row + r, ahead, sums[r]);
}

template <typename T, bool WantWeight, bool WantBias>
void backward_run(const LayerNormBackward& args, int64_t begin, int64_t end, float* sums) {
  float* dweight = sums;
  float* dbias = WantWeight ? sums + args.cols : sums;
  const int64_t row_bytes = args.cols * static_cast<int64_t>(sizeof(T));
  const int64_t group = row_bytes <= kBackwardMaxRowBytes ? kBackwardGroup : 1;
  const bool together = group > 1 && row_bytes >= kBackwardMinRowBytes;
  for (int64_t row = begin; row < end; row += group) {
    const int64_t count = smaller(group, end - row);
    if (together && count == kBackwardGroup) {
      backward_group<T, kBackwardGroup, WantWeight, WantBias>(args, row, count, dweight, dbias);
    } else {
      backward_group<T, 1, WantWeight, WantBias>(args, row, count, dweight, dbias);
    }
  }
}

// Sums over the rows of a block: runs of rows are summed apart, then added up.
template <typename T, bool WantWeight, bool WantBias>
void backward_block(const LayerNormBackward& args, int64_t block) {
  const int64_t begin = block * args.rows_per_block;
  const int64_t end = smaller(args.rows, begin + args.rows_per_block);
  constexpr int kWanted = int{WantWeight} + int{WantBias};
  if constexpr (kWanted == 0) {
    backward_run<T, false, false>(args, begin, end, nullptr);
  } else {
    const int64_t count = kWanted * args.cols;
    float* total = args.partial + block * count;
    const auto body = [&](int64_t first, int64_t last, float* to) {
      backward_run<T, WantWeight, WantBias>(args, first, last, to);
    };
    sum_in_runs(begin, end, total, total + args.blocks * count, count, body);
  }
}

template <typename T, bool WantWeight, bool WantBias>
void backward_blocks(const LayerNormBackward& args, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) backward_block<T, WantWeight, WantBias>(args, b);
  if (args.stream) finish_streams();
}

void widen_weight(DType dtype, const void* from, float offset, float* to, int64_t cols) {
  with_type(dtype,
            [&]<typename T>(T*) { widen_row(static_cast<const T*>(from), offset, to, cols); });
}

void forward(const LayerNormForward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) { forward_rows<T>(args, begin, end); });
}

void backward(const LayerNormBackward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) {
    if (args.want_dweight) {
      args.want_dbias ? backward_blocks<T, true, true>(args, begin, end)
                      : backward_blocks<T, true, false>(args, begin, end);
    } else {
      args.want_dbias ? backward_blocks<T, false, true>(args, begin, end)
                      : backward_blocks<T, false, false>(args, begin, end);
    }
  });
}

void sum_blocks(float* sums, int64_t blocks, int64_t stride, DType dtype, void* to, int64_t begin,
                int64_t end) {
  with_type(dtype, [&]<typename T>(T*) {
    sum_pairwise(sums, blocks, stride, static_cast<T*>(to), begin, end);
  });
}

constexpr LayerNormKernels kKernels = {widen_weight, forward, backward, sum_blocks};

}  // namespace
}  // namespace hk
