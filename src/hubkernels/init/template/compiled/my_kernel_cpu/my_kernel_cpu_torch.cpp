// The op on CPU tensors: checks, memory and threads around the kernels.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include "registration.h"

#include "my_kernel_cpu.hpp"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 32768;

Tensor forward_isa(const Tensor& x, const std::string& isa) {
  STD_TORCH_CHECK(x.is_cpu(), "my_kernel: x is not on the CPU, but this is the CPU kernel");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "my_kernel: x is ",
                  torch::headeronly::toString(x.scalar_type()), ", must be Float");
  const my_kernel_cpu::Kernel kernel = my_kernel_cpu::find_kernel(isa);
  STD_TORCH_CHECK(kernel != nullptr, "my_kernel: isa is ", isa, ", this machine can run ",
                  my_kernel_cpu::usable_isas());

  const Tensor in = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(in);
  const auto* source = static_cast<const float*>(in.const_data_ptr());
  auto* target = static_cast<float*>(y.mutable_data_ptr());
  torch::stable::parallel_for(0, in.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
    kernel(source + begin, target + begin, end - begin);
  });
  return y;
}

Tensor forward(const Tensor& x) { return forward_isa(x, ""); }

std::string usable_isas() { return my_kernel_cpu::usable_isas(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("my_kernel", TORCH_BOX(&forward));
  m.impl("my_kernel_isa", TORCH_BOX(&forward_isa));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("usable_isas", TORCH_BOX(&usable_isas));
}
