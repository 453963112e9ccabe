// y[i] = max(x[i], 0)^2 for n floats; NaN stays NaN. Any length, any alignment.
#pragma once

#include <cstdint>

namespace my_kernel_xpu {

// Start the work on a queue (sycl::queue*).
void forward(const float* x, float* y, int64_t n, void* queue);

}  // namespace my_kernel_xpu
