#include "hk/lanes_scalar.h"
#include "samples.h"

namespace hk::scalar {

constinit const Tier<DeformKernels> kMsDeformAttn = {"scalar", kCompiledFor, kKernels};

}  // namespace hk::scalar
