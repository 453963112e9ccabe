// What the norms of this package share on the CPU: checks, blocks of rows, weights in float.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

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

inline void check_rows(const char* op, const Tensor& x) {
  check_on_cpu(op, "x", x);
  check_float_type(op, "x", x);
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x has no dims, needs at least one");
}

// One element for each column of x, in its dtype or in float.
inline void check_weight(const char* op, const char* name, const Tensor& weight, const Tensor& x) {
  check_on_cpu(op, name, weight);
  STD_TORCH_CHECK(
      weight.scalar_type() == x.scalar_type() || weight.scalar_type() == ScalarType::Float, op,
      ": ", name, " is ", dtype_text(weight.scalar_type()), ", must be Float or the dtype of x, ",
      dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(weight.dim() == 1, op, ": ", name, " has shape ", shape_text(weight),
                  ", must have one dim");
  STD_TORCH_CHECK(weight.size(0) == x.size(x.dim() - 1), op, ": ", name, " has ", weight.size(0),
                  " elements, last dim of x has ", x.size(x.dim() - 1));
}

inline void check_eps(const char* op, double eps) {
  STD_TORCH_CHECK(eps >= 0 && std::isfinite(eps), op, ": eps is ", eps,
                  ", must be finite and at least 0");
}

// A tensor that has to be like x, element by element.
inline void check_like_x(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  check_on_cpu(op, name, t);
  STD_TORCH_CHECK(t.scalar_type() == x.scalar_type(), op, ": ", name, " is ",
                  dtype_text(t.scalar_type()), ", must be the dtype of x, ",
                  dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(same_shape(t, x), op, ": ", name, " has shape ", shape_text(t),
                  ", must be the shape of x, ", shape_text(x));
}

// A statistic that a forward saved: one float for each row of x.
inline void check_statistic(const char* op, const char* name, const Tensor& saved,
                            const Tensor& x) {
  check_on_cpu(op, name, saved);
  STD_TORCH_CHECK(saved.scalar_type() == ScalarType::Float, op, ": ", name, " is ",
                  dtype_text(saved.scalar_type()), ", must be Float");
  STD_TORCH_CHECK(saved.is_contiguous(), op, ": ", name, " is not contiguous");
  const auto found = saved.sizes(), rows = x.sizes();
  STD_TORCH_CHECK(std::equal(found.begin(), found.end(), rows.begin(), rows.end() - 1), op, ": ",
                  name, " has shape ", shape_text(saved), ", must be that of x, ", shape_text(x),
                  ", but for the last dim");
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

inline Tensor empty(const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes,
                    ScalarType type) {
  return torch::stable::new_empty(like, sizes, type);
}

inline int64_t bytes_of(const Tensor& t) {
  return t.numel() * static_cast<int64_t>(t.element_size());
}

}  // namespace hk
