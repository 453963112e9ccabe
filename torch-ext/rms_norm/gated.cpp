// RMS norm with a gate on the CPU: checks, threads and memory around the kernels of cpu/rms_norm.
#include <optional>
#include <tuple>

#include "registration.h"
#include "rms.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

std::tuple<Tensor, Tensor> gated_rms_norm(const Tensor& x, const Tensor& gate,
                                          const std::optional<Tensor>& weight, double eps,
                                          double weight_offset, bool norm_before_gate) {
  constexpr const char* kOp = "gated_rms_norm";
  hk::check_on_cpu(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "gate", gate, x);
  hk::check_eps(kOp, eps);
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();

  const auto sizes = x.sizes();
  Tensor y = hk::empty(x, sizes, x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x), gates = hk::as_rows(gate);
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  hk::advise_huge_pages(y.mutable_data_ptr(), hk::bytes_of(y));
  const hk::GatedRmsNormForward args{
      .dtype = hk::dtype_of(x),
      .x = in.data,
      .x_stride = in.stride,
      .gate = gates.data,
      .gate_stride = gates.stride,
      .weight = wide.get(),
      .y = y.mutable_data_ptr(),
      .rstd = static_cast<float*>(rstd.mutable_data_ptr()),
      .cols = in.cols,
      .eps = eps,
      .norm_before_gate = norm_before_gate,
      .stream = hk::bytes_of(y) > hk::kStreamMinBytes,
  };
  torch::stable::parallel_for(0, in.rows, hk::ceil_div(hk::kGatedElementsPerThread, in.cols),
                              [&](int64_t begin, int64_t end) {
                                const hk::FloatScratch scratch(hk::kGatedForwardRows * in.cols);
                                kernels.gated_forward(args, scratch.get(), begin, end);
                              });
  return {y, rstd};
}

std::tuple<Tensor, Tensor, Tensor> gated_rms_norm_backward(const Tensor& grad, const Tensor& x,
                                                           const Tensor& gate,
                                                           const std::optional<Tensor>& weight,
                                                           const Tensor& rstd, double weight_offset,
                                                           bool norm_before_gate, bool want_dx,
                                                           bool want_dgate, bool want_dweight) {
  constexpr const char* kOp = "gated_rms_norm_backward";
  hk::check_on_cpu(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "grad", grad, x);
  hk::check_like_x(kOp, "gate", gate, x);
  hk::check_statistic(kOp, "rstd", rstd, x);
  hk::check_wanted(kOp, "weight", weight, want_dweight);
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();

  Tensor dx = hk::gradient_of(x, want_dx), dgate = hk::gradient_of(x, want_dgate);
  if (x.numel() == 0) return {dx, dgate, hk::zero_parameter_gradient(x, weight, want_dweight)};

  const Rows in = hk::as_rows(x), gates = hk::as_rows(gate), out_grad = hk::as_rows(grad);
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  const hk::WeightGradient dweight(x, weight, in.rows, in.cols, want_dweight);
  if (want_dx) hk::advise_huge_pages(dx.mutable_data_ptr(), hk::bytes_of(dx));
  if (want_dgate) hk::advise_huge_pages(dgate.mutable_data_ptr(), hk::bytes_of(dgate));
  const hk::GatedRmsNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .gate = gates.data,
      .gate_stride = gates.stride,
      .weight = wide.get(),
      .rstd = static_cast<const float*>(rstd.const_data_ptr()),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .dgate = want_dgate ? dgate.mutable_data_ptr() : nullptr,
      .sums = dweight.sums(),
      .norm_before_gate = norm_before_gate,
      .stream = hk::bytes_of(x) > hk::kStreamMinBytes,
  };
  dweight.for_blocks(hk::kGatedElementsPerThread, [&](int64_t begin, int64_t end) {
    const hk::FloatScratch scratch(hk::kGatedBackwardRows * in.cols);
    kernels.gated_backward(args, scratch.get(), begin, end);
  });
  return {dx, dgate, dweight.finish(x)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("gated_rms_norm", TORCH_BOX(&gated_rms_norm));
  m.impl("gated_rms_norm_backward", TORCH_BOX(&gated_rms_norm_backward));
}
