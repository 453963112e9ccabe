#include "hk/lanes_avx512.h"
#include "kernels.h"

namespace hk::avx512_bf16 {

constinit const Tier<RmsNormKernels> kRmsNorm = {"avx512-bf16", kCompiledFor, kKernels};

}  // namespace hk::avx512_bf16
