// RMS norm with a gate on a CUDA device: checks, device and stream around the kernels of
// csrc/rms_norm.
#include <optional>
#include <tuple>

#include "gpu.h"
#include "registration.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

std::tuple<Tensor, Tensor> gated_rms_norm(const Tensor& x, const Tensor& gate,
                                          const std::optional<Tensor>& weight, double eps,
                                          double weight_offset, bool norm_before_gate) {
  constexpr const char* kOp = "gated_rms_norm";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "gate", gate, x);
  hk::check_eps(kOp, eps);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor y = hk::empty(x, x.sizes(), x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x), gates = hk::as_rows(gate);
  const hk::DeviceWeight scale(weight, weight_offset);
  const hk::GatedRmsNormForward args{
      .dtype = hk::dtype_of(x),
      .x = in.data,
      .x_stride = in.stride,
      .gate = gates.data,
      .gate_stride = gates.stride,
      .weight = scale.get(),
      .y = y.mutable_data_ptr(),
      .rstd = static_cast<float*>(rstd.mutable_data_ptr()),
      .rows = in.rows,
      .cols = in.cols,
      .eps = eps,
      .norm_before_gate = norm_before_gate,
  };
  hk::check_launched(kOp, hk::gated_rms_norm(args, hk::current_stream(device)));
  return {y, rstd};
}

std::tuple<Tensor, Tensor, Tensor> gated_rms_norm_backward(const Tensor& grad, const Tensor& x,
                                                           const Tensor& gate,
                                                           const std::optional<Tensor>& weight,
                                                           const Tensor& rstd, double weight_offset,
                                                           bool norm_before_gate, bool want_dx,
                                                           bool want_dgate, bool want_dweight) {
  constexpr const char* kOp = "gated_rms_norm_backward";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "grad", grad, x);
  hk::check_like_x(kOp, "gate", gate, x);
  hk::check_statistic(kOp, "rstd", rstd, x);
  hk::check_wanted(kOp, "weight", weight, want_dweight);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor dx = hk::gradient_of(x, want_dx), dgate = hk::gradient_of(x, want_dgate);
  Tensor dweight = hk::parameter_gradient(x, weight, want_dweight);
  if (x.numel() == 0) return {dx, dgate, torch::stable::zero_(dweight)};
  if (!want_dx && !want_dgate && !want_dweight) return {dx, dgate, dweight};

  const Rows in = hk::as_rows(x), gates = hk::as_rows(gate), out_grad = hk::as_rows(grad);
  const hk::DeviceWeight scale(weight, weight_offset);
  hk::GatedRmsNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .gate = gates.data,
      .gate_stride = gates.stride,
      .weight = scale.get(),
      .rstd = static_cast<const float*>(rstd.const_data_ptr()),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .dgate = want_dgate ? dgate.mutable_data_ptr() : nullptr,
      .dweight = want_dweight ? dweight.mutable_data_ptr() : nullptr,
      .workspace = nullptr,
      .rows = in.rows,
      .cols = in.cols,
      .norm_before_gate = norm_before_gate,
  };
  Tensor workspace = hk::float_workspace(x, hk::backward_workspace(args));
  args.workspace = static_cast<float*>(workspace.mutable_data_ptr());
  hk::check_launched(kOp, hk::gated_rms_norm_backward(args, hk::current_stream(device)));
  return {dx, dgate, dweight};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("gated_rms_norm", TORCH_BOX(&gated_rms_norm));
  m.impl("gated_rms_norm_backward", TORCH_BOX(&gated_rms_norm_backward));
}
