#include "hk/isa.h"
#include "rms_norm.h"

namespace hk {
namespace {

constexpr const Tier<RmsNormKernels>* kTiers[] = {
#if defined(__x86_64__)
    &avx512_bf16::kRmsNorm,
    &avx512::kRmsNorm,
    &avx2::kRmsNorm,
#endif
    &scalar::kRmsNorm,
};

const Tier<RmsNormKernels>& tier() {
  static const Tier<RmsNormKernels>& chosen = choose_tier(kTiers);
  return chosen;
}

}  // namespace

const RmsNormKernels& rms_norm_kernels() { return tier().functions; }

const char* rms_norm_isa() { return tier().isa; }

}  // namespace hk
