#include "hk/lanes_avx512.h"
#include "rows.h"

namespace hk::avx512_bf16 {

constinit const Tier<LayerNormKernels> kLayerNorm = {"avx512-bf16", kCompiledFor, kKernels};

}  // namespace hk::avx512_bf16
