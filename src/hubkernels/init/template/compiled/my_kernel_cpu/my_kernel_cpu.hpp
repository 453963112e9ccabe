// y[i] = max(x[i], 0)^2 for n floats; NaN stays NaN. Any length, any alignment.
#pragma once

#include <cstdint>
#include <string>

namespace my_kernel_cpu {

using Kernel = void (*)(const float* x, float* y, int64_t n);

// The kernel for this instruction set, or the best that this machine runs when isa is empty.
// nullptr where the machine cannot run it or there is none.
Kernel find_kernel(const std::string& isa);

// The instruction sets that find_kernel knows on this machine, the best first: "avx512,scalar".
std::string usable_isas();

}  // namespace my_kernel_cpu
