// RMS norm, also of a sum, on the CPU: checks, threads and memory around the kernels of
// cpu/rms_norm.
#include <optional>
#include <tuple>

#include "overlap.h"
#include "registration.h"
#include "rms.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

// What of it is not known yet: nothing is added, nothing streamed.
hk::RmsNormForward forward_args(const Rows& x, hk::DType dtype, const hk::WideWeight& weight,
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
      .cols = x.cols,
      .eps = eps,
      .stream = false,
  };
}

void run_forward(const hk::RmsNormForward& args, int64_t rows) {
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();
  torch::stable::parallel_for(
      0, rows, hk::ceil_div(hk::kElementsPerThread, args.cols),
      [&](int64_t begin, int64_t end) { kernels.forward(args, begin, end); });
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                    double eps, double weight_offset) {
  hk::check_on_cpu("rms_norm", "x", x);
  hk::check_input("rms_norm", x, weight, weight_offset);
  hk::check_eps("rms_norm", eps);
  hk::rms_norm_kernels();

  const auto sizes = x.sizes();
  Tensor y = hk::empty(x, sizes, x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x);
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  hk::advise_huge_pages(y.mutable_data_ptr(), hk::bytes_of(y));
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), wide, eps);
  args.y = y.mutable_data_ptr();
  args.rstd = static_cast<float*>(rstd.mutable_data_ptr());
  args.stream = hk::bytes_of(y) > hk::kStreamMinBytes;
  run_forward(args, in.rows);
  return {y, rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const std::optional<Tensor>& weight, double eps,
                                                double weight_offset) {
  hk::check_on_cpu("add_rms_norm", "x", x);
  hk::check_input("add_rms_norm", x, weight, weight_offset);
  hk::check_like_x("add_rms_norm", "residual", residual, x);
  hk::check_eps("add_rms_norm", eps);
  hk::rms_norm_kernels();

  const auto sizes = x.sizes();
  Tensor y = hk::empty(x, sizes, x.scalar_type());
  Tensor summed = hk::empty(x, sizes, x.scalar_type());
  Tensor rstd = hk::empty(x, hk::leading_sizes(x), ScalarType::Float);
  if (x.numel() == 0) return {y, summed, rstd};

  const Rows in = hk::as_rows(x), added = hk::as_rows(residual);
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  hk::advise_huge_pages(y.mutable_data_ptr(), hk::bytes_of(y));
  hk::advise_huge_pages(summed.mutable_data_ptr(), hk::bytes_of(y));
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), wide, eps);
  args.residual = added.data;
  args.residual_stride = added.stride;
  args.summed = summed.mutable_data_ptr();
  args.summed_stride = in.cols;
  args.y = y.mutable_data_ptr();
  args.rstd = static_cast<float*>(rstd.mutable_data_ptr());
  args.stream = hk::bytes_of(y) > hk::kStreamMinBytes;
  run_forward(args, in.rows);
  return {y, summed, rstd};
}

void add_rms_norm_in_place(Tensor x, Tensor residual, const std::optional<Tensor>& weight,
                           double eps, double weight_offset) {
  constexpr const char* kOp = "add_rms_norm_";
  hk::check_on_cpu(kOp, "x", x);
  hk::check_input(kOp, x, weight, weight_offset);
  hk::check_like_x(kOp, "residual", residual, x);
  hk::check_eps(kOp, eps);
  hk::rms_norm_kernels();
  if (x.numel() == 0) return;
  hk::check_written_in_place(kOp, x, residual, weight);

  // What has no rows of one stride goes through a copy.
  const Rows in = hk::as_rows(x), added = hk::as_rows(residual);
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  hk::RmsNormForward args = forward_args(in, hk::dtype_of(x), wide, eps);
  args.residual = added.data;
  args.residual_stride = added.stride;
  args.summed = const_cast<void*>(added.data);
  args.summed_stride = added.stride;
  args.y = const_cast<void*>(in.data);
  args.y_stride = in.stride;
  run_forward(args, in.rows);
  if (in.data != x.const_data_ptr()) torch::stable::copy_(x, in.tensor);
  if (added.data != residual.const_data_ptr()) torch::stable::copy_(residual, added.tensor);
}

// Of rms_norm, and of add_rms_norm with x its sum. The other gradient of the sum is added.
std::tuple<Tensor, Tensor> backward_of(const char* op, const Tensor& grad,
                                       const std::optional<Tensor>& grad_summed, const Tensor& x,
                                       const std::optional<Tensor>& weight, const Tensor& rstd,
                                       double weight_offset, bool want_dx, bool want_dweight) {
  hk::check_on_cpu(op, "x", x);
  hk::check_input(op, x, weight, weight_offset);
  hk::check_like_x(op, "grad", grad, x);
  if (grad_summed) hk::check_like_x(op, "grad_summed", *grad_summed, x);
  hk::check_statistic(op, "rstd", rstd, x);
  hk::check_wanted(op, "weight", weight, want_dweight);
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();

  Tensor dx = hk::gradient_of(x, want_dx);
  if (x.numel() == 0) return {dx, hk::zero_parameter_gradient(x, weight, want_dweight)};

  const Rows in = hk::as_rows(x), out_grad = hk::as_rows(grad);
  std::optional<Rows> sum_grad;
  if (grad_summed) sum_grad.emplace(hk::as_rows(*grad_summed));
  const hk::WideWeight wide = hk::widened(weight, weight_offset, in.cols);
  const hk::WeightGradient dweight(x, weight, in.rows, in.cols, want_dweight);
  if (want_dx) hk::advise_huge_pages(dx.mutable_data_ptr(), hk::bytes_of(dx));
  const hk::RmsNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .grad_summed = sum_grad ? sum_grad->data : nullptr,
      .grad_summed_stride = sum_grad ? sum_grad->stride : 0,
      .weight = wide.get(),
      .rstd = static_cast<const float*>(rstd.const_data_ptr()),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .sums = dweight.sums(),
      .stream = want_dx && hk::bytes_of(dx) > hk::kStreamMinBytes,
  };
  dweight.for_blocks(hk::kElementsPerThread,
                     [&](int64_t begin, int64_t end) { kernels.backward(args, begin, end); });
  return {dx, dweight.finish(x)};
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

std::string cpu_isa() { return hk::rms_norm_isa(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward));
  m.impl("add_rms_norm", TORCH_BOX(&add_rms_norm));
  m.impl("add_rms_norm_", TORCH_BOX(&add_rms_norm_in_place));
  m.impl("add_rms_norm_backward", TORCH_BOX(&add_rms_norm_backward));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("cpu_isa", TORCH_BOX(&cpu_isa));
}
