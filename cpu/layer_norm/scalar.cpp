#include "hk/lanes_scalar.h"
#include "rows.h"

namespace hk::scalar {

constinit const Tier<LayerNormKernels> kLayerNorm = {"scalar", kCompiledFor, kKernels};

}  // namespace hk::scalar
