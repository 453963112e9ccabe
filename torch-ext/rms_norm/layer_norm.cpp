// Layer norm on the CPU: checks, threads and memory around the kernels of cpu/layer_norm.
#include "layer_norm/layer_norm.h"

#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "hk/memory.h"
#include "hk/tensor.h"
#include "norm.h"
#include "registration.h"

namespace {

using hk::bytes_of;
using hk::ceil_div;
using hk::empty;
using hk::kElementsPerThread;
using hk::kStreamMinBytes;
using hk::Rows;
using hk::ScalarType;
using hk::Tensor;
using hk::WideWeight;

constexpr const char* kForward = "layer_norm";
constexpr const char* kBackward = "layer_norm_backward";

float* floats_of(Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }

const float* floats_of(const Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); }

std::tuple<Tensor, Tensor, Tensor, Tensor> layer_norm(const Tensor& x,
                                                      const std::optional<Tensor>& weight,
                                                      const std::optional<Tensor>& bias,
                                                      double eps) {
  hk::check_on_cpu(kForward, "x", x);
  hk::check_input(kForward, x, weight, bias);
  hk::check_eps(kForward, eps);
  const hk::LayerNormKernels& kernels = hk::layer_norm_kernels();

  const auto leading = hk::leading_sizes(x);
  Tensor y = empty(x, x.sizes(), x.scalar_type());
  Tensor mean = empty(x, leading, ScalarType::Float);
  Tensor mean_rest = empty(x, leading, ScalarType::Float);
  Tensor rstd = empty(x, leading, ScalarType::Float);
  if (x.numel() == 0) return {y, mean, mean_rest, rstd};

  const Rows in = hk::as_rows(x);
  const WideWeight wide_weight(weight, 0, 1, in.cols, kernels.widen);
  const WideWeight wide_bias(bias, 0, 0, in.cols, kernels.widen);
  hk::advise_huge_pages(y.mutable_data_ptr(), bytes_of(y));
  const hk::LayerNormForward args{
      .dtype = hk::dtype_of(x),
      .x = in.data,
      .x_stride = in.stride,
      .weight = wide_weight.get(),
      .bias = wide_bias.get(),
      .y = y.mutable_data_ptr(),
      .mean = floats_of(mean),
      .mean_rest = floats_of(mean_rest),
      .rstd = floats_of(rstd),
      .cols = in.cols,
      .eps = eps,
      .stream = bytes_of(y) > kStreamMinBytes,
  };
  torch::stable::parallel_for(
      0, in.rows, ceil_div(kElementsPerThread, in.cols),
      [&](int64_t begin, int64_t end) { kernels.forward(args, begin, end); });
  return {y, mean, mean_rest, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x,
                                                       const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias,
                                                       const Tensor& mean, const Tensor& mean_rest,
                                                       const Tensor& rstd, bool want_dx,
                                                       bool want_dweight, bool want_dbias) {
  hk::check_on_cpu(kBackward, "x", x);
  hk::check_input(kBackward, x, weight, bias);
  hk::check_like_x(kBackward, "grad", grad, x);
  hk::check_statistic(kBackward, "mean", mean, x);
  hk::check_statistic(kBackward, "mean_rest", mean_rest, x);
  hk::check_statistic(kBackward, "rstd", rstd, x);
  hk::check_wanted(kBackward, "weight", weight, want_dweight);
  hk::check_wanted(kBackward, "bias", bias, want_dbias);
  const hk::LayerNormKernels& kernels = hk::layer_norm_kernels();

  Tensor dx = hk::gradient_of(x, want_dx);
  Tensor dweight = hk::parameter_gradient(x, weight, want_dweight);
  Tensor dbias = hk::parameter_gradient(x, bias, want_dbias);
  if (x.numel() == 0) {
    return {dx, torch::stable::zero_(dweight), torch::stable::zero_(dbias)};
  }

  const Rows in = hk::as_rows(x), out_grad = hk::as_rows(grad);
  const WideWeight wide_weight(weight, 0, 1, in.cols, kernels.widen);
  const int64_t block_rows = hk::rows_per_block(in.rows, in.cols);
  const int64_t blocks = ceil_div(in.rows, block_rows);
  const int64_t sums = (int64_t{want_dweight} + int64_t{want_dbias}) * in.cols;
  std::optional<hk::FloatScratch> partial;
  if (sums > 0) partial.emplace(2 * blocks * sums);
  if (want_dx) hk::advise_huge_pages(dx.mutable_data_ptr(), bytes_of(dx));
  const hk::LayerNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .weight = wide_weight.get(),
      .mean = floats_of(mean),
      .mean_rest = floats_of(mean_rest),
      .rstd = floats_of(rstd),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .partial = partial ? partial->get() : nullptr,
      .want_dweight = want_dweight,
      .want_dbias = want_dbias,
      .rows = in.rows,
      .cols = in.cols,
      .rows_per_block = block_rows,
      .blocks = blocks,
      .stream = want_dx && bytes_of(dx) > kStreamMinBytes,
  };
  torch::stable::parallel_for(
      0, blocks, ceil_div(kElementsPerThread, block_rows * in.cols),
      [&](int64_t begin, int64_t end) { kernels.backward(args, begin, end); });

  const auto sum_blocks = [&](Tensor& to, int64_t offset) {
    torch::stable::parallel_for(
        0, in.cols, ceil_div(kElementsPerThread, blocks), [&](int64_t begin, int64_t end) {
          kernels.sum_blocks(args.partial + offset, blocks, sums, hk::dtype_of(to),
                             to.mutable_data_ptr(), begin, end);
        });
  };
  if (want_dweight) sum_blocks(dweight, 0);
  if (want_dbias) sum_blocks(dbias, want_dweight ? in.cols : 0);
  return {dx, dweight, dbias};
}

std::string layer_norm_isa() { return hk::layer_norm_isa(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("layer_norm", TORCH_BOX(&layer_norm));
  m.impl("layer_norm_backward", TORCH_BOX(&layer_norm_backward));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("layer_norm_isa", TORCH_BOX(&layer_norm_isa));
}
