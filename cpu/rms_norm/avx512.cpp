#include "hk/lanes_avx512.h"
#include "rows.h"

namespace hk::avx512 {

const RmsNormKernels kRmsNorm = kKernels;

}  // namespace hk::avx512
