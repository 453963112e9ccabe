#include "hk/lanes_avx2.h"
#include "rows.h"

namespace hk::avx2 {

constinit const Tier<LayerNormKernels> kLayerNorm = {"avx2", kCompiledFor, kKernels};

}  // namespace hk::avx2
