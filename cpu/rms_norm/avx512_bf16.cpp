#include "hk/lanes_avx512.h"
#include "rows.h"

namespace hk::avx512_bf16 {

const RmsNormKernels kRmsNorm = kKernels;

}  // namespace hk::avx512_bf16
