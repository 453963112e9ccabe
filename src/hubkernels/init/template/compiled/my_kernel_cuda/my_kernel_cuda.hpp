// y[i] = max(x[i], 0)^2 for n floats; NaN stays NaN. Any length, any alignment.
#pragma once

#include <cstdint>

namespace my_kernel_cuda {

// Start the work on a stream (cudaStream_t, hipStream_t) of the current device. Returns what went
// wrong, or nullptr.
const char* forward(const float* x, float* y, int64_t n, void* stream);

}  // namespace my_kernel_cuda
