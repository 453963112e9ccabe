// The schemas. The files that know a device register the functions.
#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def("my_kernel(Tensor x) -> Tensor");
#ifdef CPU_KERNEL
  m.def("my_kernel_isa(Tensor x, str isa) -> Tensor");
  m.def("usable_isas() -> str");
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
