#pragma once

#include <cstdint>

namespace my_kernel_cpu::avx512 {

void forward(const float* x, float* y, int64_t n);

}  // namespace my_kernel_cpu::avx512
