// Compiled with AVX-512 flags. It includes no torch header and no inline function that baseline
// files include too: the linker keeps one copy of those, and that copy would not run on every
// machine.
#include "my_kernel_avx512.hpp"

#include <immintrin.h>

namespace my_kernel_cpu::avx512 {

constinit const Features kNeeds = kCompiledFor;

void forward(const float* x, float* y, int64_t n) {
  const __m512 zero = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 live = n - i >= 16 ? 0xFFFF : (1u << (n - i)) - 1;
    const __m512 v = _mm512_maskz_loadu_ps(live, x + i);
    const __mmask16 keep = _mm512_cmp_ps_mask(v, zero, _CMP_NLT_UQ);  // also where v is NaN
    _mm512_mask_storeu_ps(y + i, live, _mm512_maskz_mul_ps(keep, v, v));
  }
}

}  // namespace my_kernel_cpu::avx512
