#include "hk/isa.h"
#include "rms_norm.h"

namespace hk {
namespace {

constexpr Tier<RmsNormKernels> kTiers[] = {
#if defined(__x86_64__)
    {"avx512-bf16", has_avx512_bf16, &avx512_bf16::kRmsNorm},
    {"avx512", has_avx512, &avx512::kRmsNorm},
    {"avx2", has_avx2, &avx2::kRmsNorm},
#endif
    {"scalar", has_scalar, &scalar::kRmsNorm},
};

const Tier<RmsNormKernels>& tier() {
  static const Tier<RmsNormKernels>& chosen = choose_tier(kTiers);
  return chosen;
}

}  // namespace

const RmsNormKernels& rms_norm_kernels() { return *tier().functions; }

const char* rms_norm_isa() { return tier().isa; }

}  // namespace hk
