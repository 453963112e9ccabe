#include "hk/lanes_avx2.h"
#include "rows.h"

namespace hk::avx2 {

const RmsNormKernels kRmsNorm = kKernels;

}  // namespace hk::avx2
