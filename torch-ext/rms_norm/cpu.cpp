// RMS norm on the CPU: checks, threads and memory around the kernels of cpu/rms_norm.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>

#include "hk/memory.h"
#include "hk/tensor.h"
#include "registration.h"
#include "rms_norm/rms_norm.h"

namespace {

using hk::Rows;
using hk::ScalarType;
using hk::Tensor;

constexpr const char* kForward = "rms_norm";
constexpr const char* kBackward = "rms_norm_backward";

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 32768;

// Outputs above this size are written around the caches. At 16 MiB that gains 15 %, and 9 % with
// the next op counted; at 8 MiB it gains for float32 and loses for bfloat16 (32 MiB of L3).
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

// dweight has at most so many partial sums, of at least so much work each.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinBlockRows = 8;
constexpr int64_t kMinBlockElements = 16384;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Depends on the shape alone, and so do the bits of dweight.
int64_t rows_per_block(int64_t rows, int64_t cols) {
  const int64_t least = std::max(kMinBlockRows, ceil_div(kMinBlockElements, cols));
  const int64_t wanted = std::max(least, ceil_div(rows, kMaxBlocks));
  return ceil_div(wanted, 4) * 4;
}

void check_input(const char* op, const Tensor& x, const std::optional<Tensor>& weight,
                 double weight_offset) {
  hk::check_on_cpu(op, "x", x);
  hk::check_float_type(op, "x", x);
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x has no dims, needs at least one");
  STD_TORCH_CHECK(std::isfinite(weight_offset), op, ": weight_offset is ", weight_offset,
                  ", must be finite");
  if (!weight) {
    STD_TORCH_CHECK(weight_offset == 0, op, ": weight_offset is ", weight_offset,
                    ", must be 0 without a weight");
    return;
  }
  hk::check_on_cpu(op, "weight", *weight);
  STD_TORCH_CHECK(
      weight->scalar_type() == x.scalar_type() || weight->scalar_type() == ScalarType::Float, op,
      ": weight is ", hk::dtype_text(weight->scalar_type()), ", must be Float or the dtype of x, ",
      hk::dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(weight->dim() == 1, op, ": weight has shape ", hk::shape_text(*weight),
                  ", must have one dim");
  STD_TORCH_CHECK(weight->size(0) == x.size(x.dim() - 1), op, ": weight has ", weight->size(0),
                  " elements, last dim of x has ", x.size(x.dim() - 1));
}

void check_grad(const Tensor& grad, const Tensor& x, const Tensor& rstd) {
  hk::check_on_cpu(kBackward, "grad", grad);
  hk::check_on_cpu(kBackward, "rstd", rstd);
  STD_TORCH_CHECK(grad.scalar_type() == x.scalar_type(), kBackward, ": grad is ",
                  hk::dtype_text(grad.scalar_type()), ", must be the dtype of x, ",
                  hk::dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(hk::same_shape(grad, x), kBackward, ": grad has shape ", hk::shape_text(grad),
                  ", must be the shape of x, ", hk::shape_text(x));
  STD_TORCH_CHECK(rstd.scalar_type() == ScalarType::Float, kBackward, ": rstd is ",
                  hk::dtype_text(rstd.scalar_type()), ", must be Float");
  STD_TORCH_CHECK(rstd.is_contiguous(), kBackward, ": rstd is not contiguous");
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  STD_TORCH_CHECK(rstd.numel() == rows, kBackward, ": rstd has ", rstd.numel(), " elements, x has ",
                  rows, " rows");
}

// weight + offset in float; ones where there is no weight.
class WideWeight {
 public:
  WideWeight(const std::optional<Tensor>& weight, double offset, int64_t cols) {
    if (weight && offset == 0 && weight->scalar_type() == ScalarType::Float) {
      data_ = static_cast<const float*>(tensor_.emplace(hk::as_rows(*weight)).data);
      return;
    }
    float* wide = scratch_.emplace(cols).get();
    data_ = wide;
    if (!weight) {
      std::fill_n(wide, cols, 1.0f);
      return;
    }
    const Rows from = hk::as_rows(*weight);
    hk::rms_norm_kernels().widen(hk::dtype_of(*weight), from.data, static_cast<float>(offset), wide,
                                 cols);
  }
  const float* get() const { return data_; }

 private:
  std::optional<Rows> tensor_;
  std::optional<hk::FloatScratch> scratch_;
  const float* data_ = nullptr;
};

Tensor empty(const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes, ScalarType type) {
  return torch::stable::new_empty(like, sizes, type);
}

int64_t bytes_of(const Tensor& t) { return t.numel() * static_cast<int64_t>(t.element_size()); }

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
  const WideWeight wide(weight, weight_offset, in.cols);
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
  check_grad(grad, x, rstd);
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
  const WideWeight wide(weight, weight_offset, in.cols);
  const int64_t block_rows = rows_per_block(in.rows, in.cols);
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
