// The schemas, the same for every backend.
#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def("silu(Tensor x) -> Tensor");
  m.def("gelu(Tensor x) -> Tensor");
  m.def("gelu_tanh(Tensor x) -> Tensor");
  m.def("quick_gelu(Tensor x) -> Tensor");
  m.def("silu_backward(Tensor grad, Tensor x) -> Tensor");
  m.def("gelu_backward(Tensor grad, Tensor x) -> Tensor");
  m.def("gelu_tanh_backward(Tensor grad, Tensor x) -> Tensor");
  m.def("quick_gelu_backward(Tensor grad, Tensor x) -> Tensor");

  // x is gate and up next to each other, or up is apart.
  m.def("silu_and_mul(Tensor x, Tensor? up) -> Tensor");
  m.def("gelu_and_mul(Tensor x, Tensor? up) -> Tensor");
  m.def("gelu_tanh_and_mul(Tensor x, Tensor? up) -> Tensor");
  // -> (dx, dup); one that is not wanted has no elements
  m.def(
      "silu_and_mul_backward(Tensor grad, Tensor x, Tensor? up, bool want_dx, bool want_dup) "
      "-> (Tensor, Tensor)");
  m.def(
      "gelu_and_mul_backward(Tensor grad, Tensor x, Tensor? up, bool want_dx, bool want_dup) "
      "-> (Tensor, Tensor)");
  m.def(
      "gelu_tanh_and_mul_backward(Tensor grad, Tensor x, Tensor? up, bool want_dx, bool want_dup) "
      "-> (Tensor, Tensor)");

  // -> (q, k) rotated
  m.def(
      "rope(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor? position_ids, int rotary_dim, "
      "bool interleaved, int unsqueeze_dim) -> (Tensor, Tensor)");
  // -> (dq, dk); without its grad it has no elements
  m.def(
      "rope_backward(Tensor? grad_q, Tensor? grad_k, Tensor cos, Tensor sin, Tensor? position_ids, "
      "int rotary_dim, bool interleaved, int unsqueeze_dim) -> (Tensor, Tensor)");
#if defined(CPU_KERNEL)
  m.def("cpu_isa() -> str");
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
