// The device and the stream of a call on CUDA tensors, for bindings on the stable ABI.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include "hk/tensor.h"

namespace hk {

inline cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline bool same_cuda_device(const Tensor& a, const Tensor& b) {
  return a.is_cuda() && a.get_device_index() == b.get_device_index();
}

}  // namespace hk
