// What bindings for CUDA need of torch beside tensors.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <cstdint>

#include "hk/tensor.h"

namespace hk {

using DeviceGuard = torch::stable::accelerator::DeviceGuard;

inline cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline void check_launched(const char* op, cudaError_t status) {
  STD_TORCH_CHECK(status == cudaSuccess, op,
                  ": the kernel was not launched: ", cudaGetErrorString(status));
}

}  // namespace hk
