// The schemas, the same for every backend.
#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def(
      "ms_deform_attn(Tensor value, Tensor spatial_shapes, Tensor? level_start_index, "
      "Tensor sampling_locations, Tensor attention_weights) -> Tensor");
  // -> the gradients of value, sampling_locations and attention_weights; one that is not wanted has
  // no elements. deterministic: that of value has the same bits from run to run
  m.def(
      "ms_deform_attn_backward(Tensor grad, Tensor value, Tensor spatial_shapes, "
      "Tensor? level_start_index, Tensor sampling_locations, Tensor attention_weights, "
      "bool want_value, bool want_locations, bool want_weights, "
      "bool deterministic=False) -> (Tensor, Tensor, Tensor)");
#if defined(CPU_KERNEL)
  m.def("cpu_isa() -> str");
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
