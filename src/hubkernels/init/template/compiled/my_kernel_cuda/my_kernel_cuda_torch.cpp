// The op on CUDA and ROCm tensors, which torch calls CUDA both: checks, memory, device and stream.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include "registration.h"

#include "my_kernel_cuda.hpp"

// torch's headers declare it for builds with the CUDA toolkit's headers only.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

void* current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
}

Tensor forward(const Tensor& x) {
  STD_TORCH_CHECK(x.is_cuda(), "my_kernel: x is not on a GPU, but this is the GPU kernel");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "my_kernel: x is ",
                  torch::headeronly::toString(x.scalar_type()), ", must be Float");
  const auto device = x.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Tensor in = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(in);
  const char* wrong = my_kernel_cuda::forward(static_cast<const float*>(in.const_data_ptr()),
                                              static_cast<float*>(y.mutable_data_ptr()), in.numel(),
                                              current_stream(device));
  STD_TORCH_CHECK(wrong == nullptr, "my_kernel: ", wrong);
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("my_kernel", TORCH_BOX(&forward));
}
