#include "hk/lanes_avx512.h"
#include "rows.h"

namespace hk::avx512 {

constinit const Tier<LayerNormKernels> kLayerNorm = {"avx512", kCompiledFor, kKernels};

}  // namespace hk::avx512
