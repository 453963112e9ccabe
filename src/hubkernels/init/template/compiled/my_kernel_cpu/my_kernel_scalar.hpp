#pragma once

#include <cstdint>

#include "cpu_features.hpp"

namespace my_kernel_cpu::scalar {

extern const Features kNeeds;

void forward(const float* x, float* y, int64_t n);

}  // namespace my_kernel_cpu::scalar
