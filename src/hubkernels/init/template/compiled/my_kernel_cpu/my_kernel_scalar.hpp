#pragma once

#include <cstdint>

namespace my_kernel_cpu::scalar {

void forward(const float* x, float* y, int64_t n);

}  // namespace my_kernel_cpu::scalar
