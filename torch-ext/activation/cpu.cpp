// Activations on the CPU: checks, threads and memory around the kernels of cpu/activation.
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "activation/activation.h"
#include "hk/memory.h"
#include "hk/tensor.h"
#include "registration.h"

namespace {

using hk::Activation;
using hk::Rows;
using hk::Tensor;

constexpr const char* kNames[] = {"silu", "gelu", "gelu_tanh", "quick_gelu"};

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 16384;

// Outputs above this size are written around the caches.
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

int64_t bytes_of(const Tensor& t) { return t.numel() * static_cast<int64_t>(t.element_size()); }

Tensor empty(const Tensor& like, const std::vector<int64_t>& sizes) {
  Tensor made = torch::stable::new_empty(like, sizes, like.scalar_type());
  hk::advise_huge_pages(made.mutable_data_ptr(), bytes_of(made));
  return made;
}

// The shape of y: that of x, or of each half of x.
std::vector<int64_t> result_sizes(const Tensor& x, bool packed) {
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  if (packed) sizes.back() /= 2;
  return sizes;
}

void check_x(const std::string& op, const Tensor& x, bool packed) {
  hk::check_on_cpu(op.c_str(), "x", x);
  hk::check_float_type(op.c_str(), "x", x);
  if (!packed) return;
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x has no dims, needs at least one");
  const int64_t last = x.size(x.dim() - 1);
  STD_TORCH_CHECK(last % 2 == 0, op, ": last dim of x has ", last,
                  " elements, must be even: gate and up");
}

// Of `name`, which goes with x element by element.
void check_like_x(const std::string& op, const char* name, const Tensor& t, const Tensor& x,
                  bool packed) {
  hk::check_on_cpu(op.c_str(), name, t);
  STD_TORCH_CHECK(t.scalar_type() == x.scalar_type(), op, ": ", name, " is ",
                  hk::dtype_text(t.scalar_type()), ", must be the dtype of x, ",
                  hk::dtype_text(x.scalar_type()));
  const std::vector<int64_t> wanted = result_sizes(x, packed);
  const auto sizes = t.sizes();
  STD_TORCH_CHECK(std::equal(sizes.begin(), sizes.end(), wanted.begin(), wanted.end()), op, ": ",
                  name, " has shape ", hk::shape_text(t), ", must be the shape of ",
                  packed ? "a half of x, " : "x, ", hk::shape_text(x));
}

Rows rows_of(const Tensor& t) {
  if (t.dim() == 0) return {t, t.const_data_ptr(), 1, 1, 1};
  return hk::as_rows(t);
}

// Columns of the first (0) or second (1) half.
Rows half_of(const Rows& packed, int64_t which) {
  Rows half = packed;
  half.cols /= 2;
  half.data = static_cast<const char*>(packed.data) +
              which * half.cols * static_cast<int64_t>(packed.tensor.element_size());
  return half;
}

// What is read, row by row.
struct Inputs {
  Inputs(const Tensor& x_tensor, const std::optional<Tensor>& up_tensor, bool packed)
      : x(rows_of(x_tensor)) {
    if (packed) {
      up = half_of(x, 1);
      x = half_of(x, 0);
    } else if (up_tensor) {
      up = rows_of(*up_tensor);
    }
  }
  const void* up_data() const { return up ? up->data : nullptr; }
  int64_t up_stride() const { return up ? up->stride : 0; }

  Rows x;
  std::optional<Rows> up;
};

// The columns that a kernel is told: where no operand has a gap between rows, all are one row.
int64_t columns(const Rows& x, std::initializer_list<int64_t> strides) {
  for (const int64_t stride : strides) {
    if (stride != x.cols) return x.cols;
  }
  return x.rows * x.cols;
}

Tensor forward(const std::string& op, Activation activation, const Tensor& x,
               const std::optional<Tensor>& up, bool packed) {
  check_x(op, x, packed);
  if (up) check_like_x(op, "up", *up, x, false);
  const hk::ActivationKernels& kernels = hk::activation_kernels();

  Tensor y = empty(x, result_sizes(x, packed));
  if (y.numel() == 0) return y;
  const Inputs in(x, up, packed);
  const hk::ActivationForward args{
      .dtype = hk::dtype_of(x),
      .activation = activation,
      .x = in.x.data,
      .x_stride = in.x.stride,
      .up = in.up_data(),
      .up_stride = in.up_stride(),
      .y = y.mutable_data_ptr(),
      .cols = columns(in.x, {in.x.stride, in.up ? in.up->stride : in.x.cols}),
      .stream = bytes_of(y) > kStreamMinBytes,
  };
  torch::stable::parallel_for(0, y.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
    kernels.forward(args, begin, end);
  });
  return y;
}

std::tuple<Tensor, Tensor> backward(const std::string& op, Activation activation,
                                    const Tensor& grad, const Tensor& x,
                                    const std::optional<Tensor>& up, bool packed, bool want_dx,
                                    bool want_dup) {
  check_x(op, x, packed);
  if (up) check_like_x(op, "up", *up, x, false);
  check_like_x(op, "grad", grad, x, packed);
  STD_TORCH_CHECK(up || !want_dup, op, ": want_dup is true without up");
  const hk::ActivationKernels& kernels = hk::activation_kernels();

  const std::vector<int64_t> sizes = result_sizes(x, false), none = {0};
  Tensor dx = empty(x, want_dx ? sizes : none);
  Tensor dup = empty(x, want_dup ? sizes : none);
  if (grad.numel() == 0 || !(want_dx || want_dup)) return {dx, dup};

  const Rows out_grad = rows_of(grad);
  const Inputs in(x, up, packed);
  const int64_t cols = in.x.cols, dx_stride = packed ? 2 * cols : cols;
  char* dx_data = want_dx ? static_cast<char*>(dx.mutable_data_ptr()) : nullptr;
  void* dup_data = want_dup ? dup.mutable_data_ptr() : nullptr;
  if (packed) dup_data = dx_data + cols * static_cast<int64_t>(x.element_size());
  const hk::ActivationBackward args{
      .dtype = hk::dtype_of(x),
      .activation = activation,
      .grad = out_grad.data,
      .grad_stride = out_grad.stride,
      .x = in.x.data,
      .x_stride = in.x.stride,
      .up = in.up_data(),
      .up_stride = in.up_stride(),
      .dx = dx_data,
      .dx_stride = dx_stride,
      .dup = dup_data,
      .dup_stride = dx_stride,
      .cols =
          columns(in.x, {out_grad.stride, in.x.stride, in.up ? in.up->stride : cols, dx_stride}),
      .stream = bytes_of(dx) + bytes_of(dup) > kStreamMinBytes,
  };
  torch::stable::parallel_for(0, grad.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
    kernels.backward(args, begin, end);
  });
  return {dx, dup};
}

std::string name_of(Activation activation, const char* suffix) {
  return std::string(kNames[static_cast<int>(activation)]) + suffix;
}

template <Activation A>
Tensor plain(const Tensor& x) {
  return forward(name_of(A, ""), A, x, std::nullopt, false);
}

template <Activation A>
Tensor plain_backward(const Tensor& grad, const Tensor& x) {
  return std::get<0>(
      backward(name_of(A, "_backward"), A, grad, x, std::nullopt, false, true, false));
}

template <Activation A>
Tensor gated(const Tensor& x, const std::optional<Tensor>& up) {
  return forward(name_of(A, "_and_mul"), A, x, up, !up);
}

template <Activation A>
std::tuple<Tensor, Tensor> gated_backward(const Tensor& grad, const Tensor& x,
                                          const std::optional<Tensor>& up, bool want_dx,
                                          bool want_dup) {
  return backward(name_of(A, "_and_mul_backward"), A, grad, x, up, !up, want_dx, want_dup);
}

std::string cpu_isa() { return hk::activation_isa(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("silu", TORCH_BOX(&plain<Activation::silu>));
  m.impl("gelu", TORCH_BOX(&plain<Activation::gelu>));
  m.impl("gelu_tanh", TORCH_BOX(&plain<Activation::gelu_tanh>));
  m.impl("quick_gelu", TORCH_BOX(&plain<Activation::quick_gelu>));
  m.impl("silu_backward", TORCH_BOX(&plain_backward<Activation::silu>));
  m.impl("gelu_backward", TORCH_BOX(&plain_backward<Activation::gelu>));
  m.impl("gelu_tanh_backward", TORCH_BOX(&plain_backward<Activation::gelu_tanh>));
  m.impl("quick_gelu_backward", TORCH_BOX(&plain_backward<Activation::quick_gelu>));
  m.impl("silu_and_mul", TORCH_BOX(&gated<Activation::silu>));
  m.impl("gelu_and_mul", TORCH_BOX(&gated<Activation::gelu>));
  m.impl("gelu_tanh_and_mul", TORCH_BOX(&gated<Activation::gelu_tanh>));
  m.impl("silu_and_mul_backward", TORCH_BOX(&gated_backward<Activation::silu>));
  m.impl("gelu_and_mul_backward", TORCH_BOX(&gated_backward<Activation::gelu>));
  m.impl("gelu_tanh_and_mul_backward", TORCH_BOX(&gated_backward<Activation::gelu_tanh>));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("cpu_isa", TORCH_BOX(&cpu_isa));
}
