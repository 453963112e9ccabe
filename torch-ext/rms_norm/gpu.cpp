// RMS norm, also of a sum, on a CUDA device: checks, device and stream around the kernels of
// csrc/rms_norm.
#include "gpu.h"

#include <optional>
#include <tuple>

#include "overlap.h"
#include "registration.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

// What of it is not known yet: nothing is added.
hk::RmsNormForward forward_args(const Rows& x, hk::DType dtype, const hk::DeviceWeight& weight,
                                double eps) {
  return {
      .dtype = dtype,
      .x = x.data,
      .x_stride = x.stride,
      .residual = nullptr,
      .residual_stride = 0,
      .weight = weight.get(),
      .summed = nullptr,
      .summed_stride = 0,
      .y = nullptr,
      .y_stride = x.cols,
      .rstd = nullptr,
      .rows = x.rows,
      .cols = x.cols,
      .eps = eps,
  };
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                    double eps, double weight_offset) {
  constexpr const char* kOp = "rms_norm";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_eps(kOp, eps);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor y = hk::empty(x, x.sizes(), x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x);
  const hk::DeviceWeight scale(weight, weight_offset);
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), scale, eps);
  args.y = y.mutable_data_ptr();
  args.rstd = static_cast<float*>(rstd.mutable_data_ptr());
  hk::check_launched(kOp, hk::rms_norm(args, hk::current_stream(device)));
  return {y, rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const std::optional<Tensor>& weight, double eps,
                                                double weight_offset) {
  constexpr const char* kOp = "add_rms_norm";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "residual", residual, x);
  hk::check_eps(kOp, eps);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor y = hk::empty(x, x.sizes(), x.scalar_type());
  Tensor summed = hk::empty(x, x.sizes(), x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, summed, rstd};

  const Rows in = hk::as_rows(x), added = hk::as_rows(residual);
  const hk::DeviceWeight scale(weight, weight_offset);
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), scale, eps);
  args.residual = added.data;
  args.residual_stride = added.stride;
  args.summed = summed.mutable_data_ptr();
  args.summed_stride = in.cols;
  args.y = y.mutable_data_ptr();
  args.rstd = static_cast<float*>(rstd.mutable_data_ptr());
  hk::check_launched(kOp, hk::rms_norm(args, hk::current_stream(device)));
  return {y, summed, rstd};
}

void add_rms_norm_in_place(Tensor x, Tensor residual, const std::optional<Tensor>& weight,
                           double eps, double weight_offset) {
  constexpr const char* kOp = "add_rms_norm_";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "residual", residual, x);
  hk::check_eps(kOp, eps);
  if (x.numel() == 0) return;
  hk::check_written_in_place(kOp, x, residual, weight);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  // What has no rows of one stride goes through a copy.
  const Rows in = hk::as_rows(x), added = hk::as_rows(residual);
  const hk::DeviceWeight scale(weight, weight_offset);
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), scale, eps);
  args.residual = added.data;
  args.residual_stride = added.stride;
  args.summed = const_cast<void*>(added.data);
  args.summed_stride = added.stride;
  args.y = const_cast<void*>(in.data);
  args.y_stride = in.stride;
  hk::check_launched(kOp, hk::rms_norm(args, hk::current_stream(device)));
  if (in.data != x.const_data_ptr()) torch::stable::copy_(x, in.tensor);
  if (added.data != residual.const_data_ptr()) torch::stable::copy_(residual, added.tensor);
}

// Of rms_norm, and of add_rms_norm with x its sum. The other gradient of the sum is added.
std::tuple<Tensor, Tensor> backward_of(const char* op, const Tensor& grad,
                                       const std::optional<Tensor>& grad_summed, const Tensor& x,
                                       const std::optional<Tensor>& weight, const Tensor& rstd,
                                       double weight_offset, bool want_dx, bool want_dweight) {
  hk::check_on_cuda(op, "x", x);
  hk::check_input(op, x, weight, weight_offset);
  hk::check_like_x(op, "grad", grad, x);
  if (grad_summed) hk::check_like_x(op, "grad_summed", *grad_summed, x);
  hk::check_statistic(op, "rstd", rstd, x);
  hk::check_wanted(op, "weight", weight, want_dweight);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor dx = hk::gradient_of(x, want_dx);
  Tensor dweight = hk::parameter_gradient(x, weight, want_dweight);
  if (x.numel() == 0) return {dx, torch::stable::zero_(dweight)};
  if (!want_dx && !want_dweight) return {dx, dweight};

  const Rows in = hk::as_rows(x), out_grad = hk::as_rows(grad);
  std::optional<Rows> sum_grad;
  if (grad_summed) sum_grad.emplace(hk::as_rows(*grad_summed));
  const hk::DeviceWeight scale(weight, weight_offset);
  hk::RmsNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .grad_summed = sum_grad ? sum_grad->data : nullptr,
      .grad_summed_stride = sum_grad ? sum_grad->stride : 0,
      .weight = scale.get(),
      .rstd = static_cast<const float*>(rstd.const_data_ptr()),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .dweight = want_dweight ? dweight.mutable_data_ptr() : nullptr,
      .workspace = nullptr,
      .rows = in.rows,
      .cols = in.cols,
  };
  Tensor workspace = hk::float_workspace(x, hk::backward_workspace(args));
  args.workspace = static_cast<float*>(workspace.mutable_data_ptr());
  hk::check_launched(op, hk::rms_norm_backward(args, hk::current_stream(device)));
  return {dx, dweight};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x,
                                             const std::optional<Tensor>& weight,
                                             const Tensor& rstd, double weight_offset, bool want_dx,
                                             bool want_dweight) {
  return backward_of("rms_norm_backward", grad, std::nullopt, x, weight, rstd, weight_offset,
                     want_dx, want_dweight);
}

std::tuple<Tensor, Tensor> add_rms_norm_backward(const Tensor& grad,
                                                 const std::optional<Tensor>& grad_summed,
                                                 const Tensor& x,
                                                 const std::optional<Tensor>& weight,
                                                 const Tensor& rstd, double weight_offset,
                                                 bool want_dx, bool want_dweight) {
  return backward_of("add_rms_norm_backward", grad, grad_summed, x, weight, rstd, weight_offset,
                     want_dx, want_dweight);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward));
  m.impl("add_rms_norm", TORCH_BOX(&add_rms_norm));
  m.impl("add_rms_norm_", TORCH_BOX(&add_rms_norm_in_place));
  m.impl("add_rms_norm_backward", TORCH_BOX(&add_rms_norm_backward));
}
