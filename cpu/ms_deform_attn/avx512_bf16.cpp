#include "hk/lanes_avx512.h"
#include "samples.h"

namespace hk::avx512_bf16 {

constinit const Tier<DeformKernels> kMsDeformAttn = {"avx512-bf16", kCompiledFor, kKernels};

}  // namespace hk::avx512_bf16
