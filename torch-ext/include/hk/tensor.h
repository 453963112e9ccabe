// Argument checks and the step from tensors to pointers, for bindings on the stable ABI.
// A check names the op, the argument and the value, and runs before any work.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "hk/dtype.h"

namespace hk {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// "(2, 3)", for messages.
inline std::string shape_text(const Tensor& t) {
  std::string text = "(";
  for (int64_t d = 0; d < t.dim(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(t.size(d));
  }
  return text + ")";
}

inline std::string dtype_text(ScalarType type) { return torch::headeronly::toString(type); }

inline bool same_shape(const Tensor& a, const Tensor& b) {
  const auto left = a.sizes(), right = b.sizes();
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

inline bool is_float_type(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::BFloat16 || type == ScalarType::Half;
}

inline DType dtype_of(const Tensor& t) {
  const ScalarType type = t.scalar_type();
  return type == ScalarType::Float      ? DType::f32
         : type == ScalarType::BFloat16 ? DType::bf16
                                        : DType::f16;
}

inline void check_float_type(const char* op, const char* name, const Tensor& t) {
  STD_TORCH_CHECK(is_float_type(t.scalar_type()), op, ": ", name, " is ",
                  dtype_text(t.scalar_type()), ", must be Float, BFloat16 or Half");
}

inline void check_on_cpu(const char* op, const char* name, const Tensor& t) {
  STD_TORCH_CHECK(t.is_cpu(), op, ": ", name, " is not on the CPU, but this is the CPU kernel");
}

inline void check_on_cuda(const char* op, const char* name, const Tensor& t) {
  STD_TORCH_CHECK(t.is_cuda(), op, ": ", name,
                  " is not on a CUDA device, but this is the CUDA kernel");
}

// On the device of x, which is where the kernel runs.
inline void check_beside(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (x.is_cpu()) return check_on_cpu(op, name, t);
  STD_TORCH_CHECK(t.is_cuda() && t.get_device_index() == x.get_device_index(), op, ": ", name,
                  " is not on the device of x, CUDA ", x.get_device_index());
}

// A tensor as rows of its last dim: elements next to each other, a fixed step from row to row.
struct Rows {
  Tensor tensor;  // keeps the memory alive
  const void* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;  // elements
};

// Elements from row to row when every leading dim can be walked with one step, else -1.
// The stride of a dim of size 1 means nothing and is ignored.
inline int64_t row_stride(const Tensor& t) {
  const int64_t last = t.dim() - 1;
  if (t.size(last) > 1 && t.stride(last) != 1) return -1;
  int64_t stride = -1, expected = 0;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (stride == -1) {
      stride = t.stride(d);
      expected = stride;
    }
    if (t.stride(d) != expected) return -1;
    expected *= t.size(d);
  }
  return stride == -1 ? t.size(last) : stride;
}

// Views the tensor where its strides allow it, else copies it. It has at least one dim and
// one element.
inline Rows as_rows(const Tensor& t) {
  const int64_t cols = t.size(t.dim() - 1);
  const int64_t stride = row_stride(t);
  if (stride >= 0) return {t, t.const_data_ptr(), t.numel() / cols, cols, stride};
  const Tensor copy = torch::stable::contiguous(t);
  return {copy, copy.const_data_ptr(), t.numel() / cols, cols, cols};
}

}  // namespace hk
