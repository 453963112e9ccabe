#include "hk/lanes_scalar.h"
#include "rows.h"

namespace hk::scalar {

const RmsNormKernels kRmsNorm = kKernels;

}  // namespace hk::scalar
