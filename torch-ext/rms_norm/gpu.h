// What the bindings of the norms share on a CUDA device: parameters as kernels take them, memory.
#pragma once

#include <optional>

#include "checks.h"
#include "hk/cuda.h"
#include "hk/outputs.h"
#include "rms_norm/rms_norm.h"

namespace hk {

// A weight or a bias as rows of one, for the length of a call.
class DeviceWeight {
 public:
  explicit DeviceWeight(const std::optional<Tensor>& weight, double offset = 0)
      : offset_(static_cast<float>(offset)) {
    if (!weight) return;
    dtype_ = dtype_of(*weight);
    rows_.emplace(as_rows(*weight));
  }
  const void* data() const { return rows_ ? rows_->data : nullptr; }
  DType dtype() const { return dtype_; }
  NormWeight get() const { return {data(), dtype_, offset_}; }

 private:
  std::optional<Rows> rows_;
  DType dtype_ = DType::f32;
  float offset_;
};

// Memory for sums that a second kernel adds up. From torch, whose allocator takes it back for what
// comes later on the stream, and in whose graphs it is.
inline Tensor float_workspace(const Tensor& like, int64_t floats) {
  const int64_t size[] = {floats};
  return empty(like, size, ScalarType::Float);
}

}  // namespace hk
