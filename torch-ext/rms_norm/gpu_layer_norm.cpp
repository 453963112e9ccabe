// Layer norm on a CUDA device: checks, device and stream around the kernels of csrc/layer_norm.
#include <optional>
#include <tuple>

#include "gpu.h"
#include "layer_norm/layer_norm.h"
#include "registration.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

float* floats_of(Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }

const float* floats_of(const Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); }

std::tuple<Tensor, Tensor, Tensor, Tensor> layer_norm(const Tensor& x,
                                                      const std::optional<Tensor>& weight,
                                                      const std::optional<Tensor>& bias,
                                                      double eps) {
  constexpr const char* kOp = "layer_norm";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, bias);
  hk::check_eps(kOp, eps);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  const auto leading = hk::leading_sizes(x);
  Tensor y = hk::empty(x, x.sizes(), x.scalar_type());
  Tensor mean = hk::empty(x, leading, ScalarType::Float);
  Tensor mean_rest = hk::empty(x, leading, ScalarType::Float);
  Tensor rstd = hk::empty(x, leading, ScalarType::Float);
  if (x.numel() == 0) return {y, mean, mean_rest, rstd};

  const Rows in = hk::as_rows(x);
  const hk::DeviceWeight scale(weight), added(bias);
  const hk::LayerNormForward args{
      .dtype = hk::dtype_of(x),
      .x = in.data,
      .x_stride = in.stride,
      .weight = {scale.data(), scale.dtype()},
      .bias = {added.data(), added.dtype()},
      .y = y.mutable_data_ptr(),
      .mean = floats_of(mean),
      .mean_rest = floats_of(mean_rest),
      .rstd = floats_of(rstd),
      .rows = in.rows,
      .cols = in.cols,
      .eps = eps,
  };
  hk::check_launched(kOp, hk::layer_norm(args, hk::current_stream(device)));
  return {y, mean, mean_rest, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x,
                                                       const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias,
                                                       const Tensor& mean, const Tensor& mean_rest,
                                                       const Tensor& rstd, bool want_dx,
                                                       bool want_dweight, bool want_dbias) {
  constexpr const char* kOp = "layer_norm_backward";
  hk::check_on_cuda(kOp, "x", x);
  hk::check_input(kOp, x, weight, bias);
  hk::check_like_x(kOp, "grad", grad, x);
  hk::check_statistic(kOp, "mean", mean, x);
  hk::check_statistic(kOp, "mean_rest", mean_rest, x);
  hk::check_statistic(kOp, "rstd", rstd, x);
  hk::check_wanted(kOp, "weight", weight, want_dweight);
  hk::check_wanted(kOp, "bias", bias, want_dbias);
  const int32_t device = x.get_device_index();
  const hk::DeviceGuard guard(device);

  Tensor dx = hk::gradient_of(x, want_dx);
  Tensor dweight = hk::parameter_gradient(x, weight, want_dweight);
  Tensor dbias = hk::parameter_gradient(x, bias, want_dbias);
  if (x.numel() == 0) {
    return {dx, torch::stable::zero_(dweight), torch::stable::zero_(dbias)};
  }
  if (!want_dx && !want_dweight && !want_dbias) return {dx, dweight, dbias};

  const Rows in = hk::as_rows(x), out_grad = hk::as_rows(grad);
  const hk::DeviceWeight scale(weight);
  hk::LayerNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .weight = {scale.data(), scale.dtype()},
      .mean = floats_of(mean),
      .mean_rest = floats_of(mean_rest),
      .rstd = floats_of(rstd),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .dweight = want_dweight ? dweight.mutable_data_ptr() : nullptr,
      .dweight_dtype = hk::dtype_of(dweight),
      .dbias = want_dbias ? dbias.mutable_data_ptr() : nullptr,
      .dbias_dtype = hk::dtype_of(dbias),
      .workspace = nullptr,
      .rows = in.rows,
      .cols = in.cols,
  };
  Tensor workspace = hk::float_workspace(x, hk::backward_workspace(args));
  args.workspace = floats_of(workspace);
  hk::check_launched(kOp, hk::layer_norm_backward(args, hk::current_stream(device)));
  return {dx, dweight, dbias};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("layer_norm", TORCH_BOX(&layer_norm));
  m.impl("layer_norm_backward", TORCH_BOX(&layer_norm_backward));
}
