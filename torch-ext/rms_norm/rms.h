// What the bindings of the RMS norms share on the CPU: the weight, block sums.
#pragma once

#include <optional>

#include "norm.h"
#include "rms_norm/rms_norm.h"

namespace hk {

constexpr int64_t kGatedElementsPerThread = 8192;  // an exp and a division each

// weight + offset in float; ones where there is no weight.
inline WideWeight widened(const std::optional<Tensor>& weight, double offset, int64_t cols) {
  return {weight, offset, 1, cols, rms_norm_kernels().widen};
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

  // Calls body(begin, end) with blocks of rows, of so many elements a thread at least.
  template <typename Body>
  void for_blocks(int64_t elements_per_thread, Body body) const {
    torch::stable::parallel_for(
        0, sums_.blocks, ceil_div(elements_per_thread, sums_.rows_per_block * sums_.cols), body);
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

}  // namespace hk
