#include "hk/lanes_avx2.h"
#include "samples.h"

namespace hk::avx2 {

constinit const Tier<DeformKernels> kMsDeformAttn = {"avx2", kCompiledFor, kKernels};

}  // namespace hk::avx2
