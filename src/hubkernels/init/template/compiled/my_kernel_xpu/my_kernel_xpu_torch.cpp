// The op on XPU tensors: checks, memory, device and queue.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/DeviceType.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include "registration.h"

#include "my_kernel_xpu.hpp"

// torch's headers declare it for builds with the SYCL toolkit's headers only.
extern "C" AOTITorchError aoti_torch_get_current_xpu_stream(int32_t device, void** queue);

namespace {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

void* current_queue(int32_t device) {
  void* queue = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_xpu_stream(device, &queue));
  return queue;
}

Tensor forward(const Tensor& x) {
  STD_TORCH_CHECK(x.device().type() == DeviceType::XPU,
                  "my_kernel: x is not on an XPU, but this is the XPU kernel");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "my_kernel: x is ",
                  torch::headeronly::toString(x.scalar_type()), ", must be Float");
  const auto device = x.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Tensor in = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(in);
  my_kernel_xpu::forward(static_cast<const float*>(in.const_data_ptr()),
                         static_cast<float*>(y.mutable_data_ptr()), in.numel(),
                         current_queue(device));
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, XPU, m) {
  m.impl("my_kernel", TORCH_BOX(&forward));
}
