#include "hk/lanes_avx512.h"
#include "kernels.h"

namespace hk::avx512 {

constinit const Tier<ActivationKernels> kActivation = {"avx512", kCompiledFor, kKernels};

}  // namespace hk::avx512
