// The schemas, the same for every backend.
#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  // -> (y, rstd)
  m.def("rms_norm(Tensor x, Tensor? weight, float eps, float weight_offset) -> (Tensor, Tensor)");
  // -> (dx, dweight); one that is not wanted has no elements
  m.def(
      "rms_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor rstd, float weight_offset, "
      "bool want_dx, bool want_dweight) -> (Tensor, Tensor)");
  // -> (y, mean, what rounding left of the mean, rstd)
  m.def(
      "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  // -> (dx, dweight, dbias); one that is not wanted has no elements
  m.def(
      "layer_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, "
      "Tensor mean_rest, Tensor rstd, bool want_dx, bool want_dweight, bool want_dbias) "
      "-> (Tensor, Tensor, Tensor)");
  // -> (y, x + residual, rstd)
  m.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor? weight, float eps, float weight_offset) -> "
      "(Tensor, Tensor, Tensor)");
  // residual becomes x + residual, x its norm
  m.def(
      "add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor? weight, float eps, "
      "float weight_offset) -> ()");
  // x: the sum. -> (dx, dweight); one that is not wanted has no elements
  m.def(
      "add_rms_norm_backward(Tensor grad, Tensor? grad_summed, Tensor x, Tensor? weight, "
      "Tensor rstd, float weight_offset, bool want_dx, bool want_dweight) -> (Tensor, Tensor)");
  // -> (y, rstd)
  m.def(
      "gated_rms_norm(Tensor x, Tensor gate, Tensor? weight, float eps, float weight_offset, "
      "bool norm_before_gate) -> (Tensor, Tensor)");
  // -> (dx, dgate, dweight); one that is not wanted has no elements
  m.def(
      "gated_rms_norm_backward(Tensor grad, Tensor x, Tensor gate, Tensor? weight, Tensor rstd, "
      "float weight_offset, bool norm_before_gate, bool want_dx, bool want_dgate, "
      "bool want_dweight) -> (Tensor, Tensor, Tensor)");
#if defined(CPU_KERNEL)
  m.def("cpu_isa() -> str");
  m.def("layer_norm_isa() -> str");
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
