#include "hk/lanes_scalar.h"
#include "kernels.h"

namespace hk::scalar {

constinit const Tier<RmsNormKernels> kRmsNorm = {"scalar", kCompiledFor, kKernels};

}  // namespace hk::scalar
