// The schemas, the same for every backend.
#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def("my_kernel(Tensor x, str isa) -> Tensor");
  m.def("usable_isas() -> str");
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
