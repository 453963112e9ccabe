// RMS norm on a CUDA device: checks, device and stream around the kernels of csrc/rms_norm.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "hk/tensor.h"
#include "registration.h"
#include "rms_norm/rms_norm.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

constexpr const char* kOp = "rms_norm";

void check_weight(const Tensor& weight, const Tensor& x) {
  const ScalarType type = weight.scalar_type(), of_x = x.scalar_type();
  STD_TORCH_CHECK(weight.is_cuda() && weight.get_device_index() == x.get_device_index(), kOp,
                  ": weight is not on the device of x, CUDA ", x.get_device_index());
  STD_TORCH_CHECK(type == of_x || type == ScalarType::Float, kOp, ": weight is ",
                  hk::dtype_text(type), ", must be Float or the dtype of x, ",
                  hk::dtype_text(of_x));
  STD_TORCH_CHECK(weight.dim() == 1, kOp, ": weight has shape ", hk::shape_text(weight),
                  ", must have one dim");
  STD_TORCH_CHECK(weight.size(0) == x.size(x.dim() - 1), kOp, ": weight has ", weight.size(0),
                  " elements, last dim of x has ", x.size(x.dim() - 1));
}

void check_input(const Tensor& x, const std::optional<Tensor>& weight, double eps, double offset) {
  STD_TORCH_CHECK(x.is_cuda(), kOp, ": x is not on a CUDA device, but this is the CUDA kernel");
  hk::check_float_type(kOp, "x", x);
  STD_TORCH_CHECK(x.dim() >= 1, kOp, ": x has no dims, needs at least one");
  STD_TORCH_CHECK(std::isfinite(offset), kOp, ": weight_offset is ", offset, ", must be finite");
  STD_TORCH_CHECK(weight || offset == 0, kOp, ": weight_offset is ", offset,
                  ", must be 0 without a weight");
  if (weight) check_weight(*weight, x);
  STD_TORCH_CHECK(eps >= 0 && std::isfinite(eps), kOp, ": eps is ", eps,
                  ", must be finite and at least 0");
}

cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                    double eps, double weight_offset) {
  check_input(x, weight, eps, weight_offset);
  const int32_t device = x.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);

  const auto sizes = x.sizes();
  Tensor y = torch::stable::new_empty(x, sizes, x.scalar_type());
  Tensor rstd = torch::stable::new_empty(x, sizes.slice(0, sizes.size() - 1), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x);
  std::optional<Rows> scale;
  if (weight) scale.emplace(hk::as_rows(*weight));
  const cudaError_t status = hk::rms_norm(
      {
          .dtype = hk::dtype_of(x),
          .x = in.data,
          .x_stride = in.stride,
          .weight = scale ? scale->data : nullptr,
          .weight_dtype = weight ? hk::dtype_of(*weight) : hk::DType::f32,
          .offset = static_cast<float>(weight_offset),
          .y = y.mutable_data_ptr(),
          .rstd = static_cast<float*>(rstd.mutable_data_ptr()),
          .rows = in.rows,
          .cols = in.cols,
          .eps = eps,
      },
      current_stream(device));
  STD_TORCH_CHECK(status == cudaSuccess, kOp,
                  ": the kernel was not launched: ", cudaGetErrorString(status));
  return {y, rstd};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
}
