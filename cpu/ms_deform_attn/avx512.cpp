#include "hk/lanes_avx512.h"
#include "samples.h"

namespace hk::avx512 {

constinit const Tier<DeformKernels> kMsDeformAttn = {"avx512", kCompiledFor, kKernels};

}  // namespace hk::avx512
