// Fresh tensors, by one call of the C shim each: a call through the dispatcher costs a microsecond
// more.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <vector>

#include "hk/tensor.h"

namespace hk {

using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

inline int32_t shim_dtype(ScalarType type) {
  return type == ScalarType::Float      ? aoti_torch_dtype_float32()
         : type == ScalarType::BFloat16 ? aoti_torch_dtype_bfloat16()
                                        : aoti_torch_dtype_float16();
}

// Contiguous, on the device of another. Of one of the types that check_float_type lets pass.
inline Tensor empty(const Tensor& like, Sizes sizes, ScalarType type) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(),
                                                  strides.data(), shim_dtype(type), device_type,
                                                  like.get_device_index(), &made));
  return Tensor(made);
}

// Like x, or without elements where it is not wanted.
inline Tensor gradient_of(const Tensor& x, bool wanted) {
  const int64_t none[] = {0};
  return wanted ? empty(x, x.sizes(), x.scalar_type()) : empty(x, none, x.scalar_type());
}

}  // namespace hk
