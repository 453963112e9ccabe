// What a binding needs to register its ops under the id that the builder gives it, and to be
// importable from Python.
#pragma once

#include <Python.h>

// torch's own macros paste or stringize their first argument: one more expansion lets it be a
// macro, such as TORCH_EXTENSION_NAME.
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)

#define HUBKERNELS_MODULE_(NAME)                                                                \
  PyMODINIT_FUNC PyInit_##NAME(void) {                                                          \
    static PyModuleDef module = {                                                               \
        PyModuleDef_HEAD_INIT, #NAME, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr}; \
    return PyModule_Create(&module);                                                            \
  }

// An empty Python module: importing it loads the library, and loading it registers the ops.
#define REGISTER_EXTENSION(NAME) HUBKERNELS_MODULE_(NAME)
