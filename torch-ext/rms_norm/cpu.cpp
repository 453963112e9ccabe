// RMS norm on the CPU: checks, threads and memory around the kernels of cpu/rms_norm.
#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "hk/memory.h"
#include "hk/tensor.h"
#include "norm.h"
#include "registration.h"
#include "rms_norm/rms_norm.h"

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

constexpr const char* kForward = "rms_norm";
constexpr const char* kBackward = "rms_norm_backward";

void check_input(const char* op, const Tensor& x, const std::optional<Tensor>& weight,
                 double weight_offset) {
  hk::check_rows(op, x);
  STD_TORCH_CHECK(std::isfinite(weight_offset), op, ": weight_offset is ", weight_offset,
                  ", must be finite");
  STD_TORCH_CHECK(weight || weight_offset == 0, op, ": weight_offset is ", weight_offset,
                  ", must be 0 without a weight");
  if (weight) hk::check_weight(op, "weight", *weight, x);
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                    double eps, double weight_offset) {
  check_input(kForward, x, weight, weight_offset);
  STD_TORCH_CHECK(eps >= 0 && std::isfinite(eps), kForward, ": eps is ", eps,
                  ", must be finite and at least 0");
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();

  const auto sizes = x.sizes();
  Tensor y = empty(x, sizes, x.scalar_type());
  Tensor rstd = empty(x, sizes.slice(0, sizes.size() - 1), ScalarType::Float);
  if (x.numel() == 0) return {y, rstd};

  const Rows in = hk::as_rows(x);
  const WideWeight wide(weight, weight_offset, 1, in.cols, kernels.widen);
  hk::advise_huge_pages(y.mutable_data_ptr(), bytes_of(y));
  const hk::RmsNormForward args{
      .dtype = hk::dtype_of(x),
      .x = in.data,
      .x_stride = in.stride,
      .weight = wide.get(),
      .y = y.mutable_data_ptr(),
      .rstd = static_cast<float*>(rstd.mutable_data_ptr()),
      .cols = in.cols,
      .eps = eps,
      .stream = bytes_of(y) > kStreamMinBytes,
  };
  torch::stable::parallel_for(
      0, in.rows, ceil_div(kElementsPerThread, in.cols),
      [&](int64_t begin, int64_t end) { kernels.forward(args, begin, end); });
  return {y, rstd};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x,
                                             const std::optional<Tensor>& weight,
                                             const Tensor& rstd, double weight_offset, bool want_dx,
                                             bool want_dweight) {
  check_input(kBackward, x, weight, weight_offset);
  hk::check_grad(kBackward, grad, x);
  hk::check_statistic(kBackward, "rstd", rstd, x);
  STD_TORCH_CHECK(weight || !want_dweight, kBackward, ": want_dweight is true without a weight");
  const hk::RmsNormKernels& kernels = hk::rms_norm_kernels();

  const int64_t none[] = {0};
  Tensor dx = want_dx ? empty(x, x.sizes(), x.scalar_type()) : empty(x, none, x.scalar_type());
  const ScalarType weight_type = weight ? weight->scalar_type() : x.scalar_type();
  if (x.numel() == 0) {
    const int64_t cols[] = {want_dweight ? weight->size(0) : 0};
    Tensor dweight = empty(x, cols, weight_type);
    return {dx, torch::stable::zero_(dweight)};
  }

  const Rows in = hk::as_rows(x), out_grad = hk::as_rows(grad);
  const WideWeight wide(weight, weight_offset, 1, in.cols, kernels.widen);
  const int64_t block_rows = hk::rows_per_block(in.rows, in.cols);
  const int64_t blocks = ceil_div(in.rows, block_rows);
  std::optional<hk::FloatScratch> partial;
  if (want_dweight) partial.emplace(2 * blocks * in.cols);
  if (want_dx) hk::advise_huge_pages(dx.mutable_data_ptr(), bytes_of(dx));
  const hk::RmsNormBackward args{
      .dtype = hk::dtype_of(x),
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.data,
      .x_stride = in.stride,
      .weight = wide.get(),
      .rstd = static_cast<const float*>(rstd.const_data_ptr()),
      .dx = want_dx ? dx.mutable_data_ptr() : nullptr,
      .partial = partial ? partial->get() : nullptr,
      .rows = in.rows,
      .cols = in.cols,
      .rows_per_block = block_rows,
      .blocks = blocks,
      .stream = want_dx && bytes_of(dx) > kStreamMinBytes,
  };
  torch::stable::parallel_for(
      0, blocks, ceil_div(kElementsPerThread, block_rows * in.cols),
      [&](int64_t begin, int64_t end) { kernels.backward(args, begin, end); });

  const int64_t dweight_sizes[] = {want_dweight ? in.cols : 0};
  Tensor dweight = empty(x, dweight_sizes, weight_type);
  if (want_dweight) {
    torch::stable::parallel_for(
        0, in.cols, ceil_div(kElementsPerThread, blocks), [&](int64_t begin, int64_t end) {
          kernels.sum_blocks(args, hk::dtype_of(*weight), dweight.mutable_data_ptr(), begin, end);
        });
  }
  return {dx, dweight};
}

std::string cpu_isa() { return hk::rms_norm_isa(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("cpu_isa", TORCH_BOX(&cpu_isa));
}
