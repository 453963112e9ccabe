#include "hk/lanes_avx2.h"
#include "kernels.h"

namespace hk::avx2 {

constinit const Tier<ActivationKernels> kActivation = {"avx2", kCompiledFor, kKernels};

}  // namespace hk::avx2
