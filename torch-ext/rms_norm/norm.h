// What the bindings of the RMS norms share: checks, the weight, block sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "hk/memory.h"
#include "hk/tensor.h"
#include "rms_norm/rms_norm.h"

namespace hk {

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 32768;
constexpr int64_t kGatedElementsPerThread = 8192;  // an exp and a division each

// Outputs above this size are written around the caches. At 16 MiB that gains 15 %, and 9 % with
// the next op counted; at 8 MiB it gains for float32 and loses for bfloat16 (32 MiB of L3).
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

// dweight has at most so many partial sums, of at least so much work each.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinBlockRows = 8;
constexpr int64_t kMinBlockElements = 16384;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Depends on the shape alone, and so do the bits of dweight.
inline int64_t rows_per_block(int64_t rows, int64_t cols) {
  const int64_t least = std::max(kMinBlockRows, ceil_div(kMinBlockElements, cols));
  const int64_t wanted = std::max(least, ceil_div(rows, kMaxBlocks));
  return ceil_div(wanted, 4) * 4;
}

inline void check_input(const char* op, const Tensor& x, const std::optional<Tensor>& weight,
                        double weight_offset) {
  check_on_cpu(op, "x", x);
  check_float_type(op, "x", x);
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x has no dims, needs at least one");
  STD_TORCH_CHECK(std::isfinite(weight_offset), op, ": weight_offset is ", weight_offset,
                  ", must be finite");
  if (!weight) {
    STD_TORCH_CHECK(weight_offset == 0, op, ": weight_offset is ", weight_offset,
                    ", must be 0 without a weight");
    return;
  }
  check_on_cpu(op, "weight", *weight);
  STD_TORCH_CHECK(
      weight->scalar_type() == x.scalar_type() || weight->scalar_type() == ScalarType::Float, op,
      ": weight is ", dtype_text(weight->scalar_type()), ", must be Float or the dtype of x, ",
      dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(weight->dim() == 1, op, ": weight has shape ", shape_text(*weight),
                  ", must have one dim");
  STD_TORCH_CHECK(weight->size(0) == x.size(x.dim() - 1), op, ": weight has ", weight->size(0),
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

inline void check_rstd(const char* op, const Tensor& rstd, const Tensor& x) {
  check_on_cpu(op, "rstd", rstd);
  STD_TORCH_CHECK(rstd.scalar_type() == ScalarType::Float, op, ": rstd is ",
                  dtype_text(rstd.scalar_type()), ", must be Float");
  STD_TORCH_CHECK(rstd.is_contiguous(), op, ": rstd is not contiguous");
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  STD_TORCH_CHECK(rstd.numel() == rows, op, ": rstd has ", rstd.numel(), " elements, x has ", rows,
                  " rows");
}

// weight + offset in float; ones where there is no weight.
class WideWeight {
 public:
  WideWeight(const std::optional<Tensor>& weight, double offset, int64_t cols) {
    if (weight && offset == 0 && weight->scalar_type() == ScalarType::Float) {
      data_ = static_cast<const float*>(tensor_.emplace(as_rows(*weight)).data);
      return;
    }
    float* wide = scratch_.emplace(cols).get();
    data_ = wide;
    if (!weight) {
      std::fill_n(wide, cols, 1.0f);
      return;
    }
    const Rows from = as_rows(*weight);
    rms_norm_kernels().widen(dtype_of(*weight), from.data, static_cast<float>(offset), wide, cols);
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

// Like x, or without elements where it is not wanted.
inline Tensor gradient_of(const Tensor& x, bool wanted) {
  const int64_t none[] = {0};
  return wanted ? empty(x, x.sizes(), x.scalar_type()) : empty(x, none, x.scalar_type());
}

// The sums of dweight: memory for the block sums, and the last step from them to the tensor.
class WeightGradient {
 public:
  WeightGradient(const Tensor& x, const std::optional<Tensor>& weight, int64_t rows, int64_t cols,
                 bool wanted)
      : type_(weight ? weight->scalar_type() : x.scalar_type()) {
    sums_.rows = rows;
    sums_.cols = cols;
    sums_.rows_per_block = rows_per_block(rows, cols);
    sums_.blocks = ceil_div(rows, sums_.rows_per_block);
    if (wanted) sums_.partial = partial_.emplace(2 * sums_.blocks * cols).get();
  }

  const WeightSums& sums() const { return sums_; }

  // Calls body(begin, end) with blocks of rows.
  template <typename Body>
  void for_blocks(Body body) const {
    torch::stable::parallel_for(
        0, sums_.blocks, ceil_div(kElementsPerThread, sums_.rows_per_block * sums_.cols), body);
  }

  // After every block is done.
  Tensor finish(const Tensor& x) const {
    const int64_t sizes[] = {sums_.partial == nullptr ? 0 : sums_.cols};
    Tensor dweight = empty(x, sizes, type_);
    if (sums_.partial == nullptr) return dweight;
    void* to = dweight.mutable_data_ptr();
    const DType dtype = dtype_of(dweight);
    torch::stable::parallel_for(0, sums_.cols, ceil_div(kElementsPerThread, sums_.blocks),
                                [&](int64_t begin, int64_t end) {
                                  rms_norm_kernels().sum_blocks(sums_, dtype, to, begin, end);
                                });
    return dweight;
  }

 private:
  ScalarType type_;
  WeightSums sums_ = {};
  std::optional<FloatScratch> partial_;
};

// Of no rows, or rows without columns.
inline Tensor empty_weight_gradient(const Tensor& x, const std::optional<Tensor>& weight,
                                    bool wanted) {
  const int64_t cols[] = {wanted ? weight->size(0) : 0};
  Tensor dweight = empty(x, cols, weight ? weight->scalar_type() : x.scalar_type());
  return torch::stable::zero_(dweight);
}

}  // namespace hk
