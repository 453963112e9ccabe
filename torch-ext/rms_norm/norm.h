// What the norms of this package share on the CPU: blocks of rows, weights in float.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "checks.h"
#include "hk/memory.h"
#include "hk/tensor.h"

namespace hk {

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 32768;

// Outputs above this size are written around the caches. At 16 MiB that gains 15 %, and 9 % with
// the next op counted; at 8 MiB it gains for float32 and loses for bfloat16 (32 MiB of L3).
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

// A weight gradient has at most so many partial sums, of at least so much work each.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinBlockRows = 8;
constexpr int64_t kMinBlockElements = 16384;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Depends on the shape alone, and so do the bits of a weight gradient.
inline int64_t rows_per_block(int64_t rows, int64_t cols) {
  const int64_t least = std::max(kMinBlockRows, ceil_div(kMinBlockElements, cols));
  const int64_t wanted = std::max(least, ceil_div(rows, kMaxBlocks));
  return ceil_div(wanted, 4) * 4;
}

// to[c] = from[c] + offset; a tier's function.
using Widen = void (*)(DType dtype, const void* from, float offset, float* to, int64_t cols);

// weight + offset in float; where there is no weight, `absent` for each column.
class WideWeight {
 public:
  WideWeight(const std::optional<Tensor>& weight, double offset, float absent, int64_t cols,
             Widen widen) {
    if (weight && offset == 0 && weight->scalar_type() == ScalarType::Float) {
      data_ = static_cast<const float*>(tensor_.emplace(as_rows(*weight)).data);
      return;
    }
    float* wide = scratch_.emplace(cols).get();
    data_ = wide;
    if (!weight) {
      std::fill_n(wide, cols, absent);
      return;
    }
    const Rows from = as_rows(*weight);
    widen(dtype_of(*weight), from.data, static_cast<float>(offset), wide, cols);
  }
  const float* get() const { return data_; }

 private:
  std::optional<Rows> tensor_;
  std::optional<FloatScratch> scratch_;
  const float* data_ = nullptr;
};

inline int64_t bytes_of(const Tensor& t) {
  return t.numel() * static_cast<int64_t>(t.element_size());
}

}  // namespace hk
