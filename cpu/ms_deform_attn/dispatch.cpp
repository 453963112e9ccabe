#include "hk/isa.h"
#include "ms_deform_attn.h"

namespace hk {
namespace {

constexpr const Tier<DeformKernels>* kTiers[] = {
#if defined(__x86_64__)
    &avx512_bf16::kMsDeformAttn,
    &avx512::kMsDeformAttn,
    &avx2::kMsDeformAttn,
#endif
    &scalar::kMsDeformAttn,
};

const Tier<DeformKernels>& tier() {
  static const Tier<DeformKernels>& chosen = choose_tier(kTiers);
  return chosen;
}

}  // namespace

const DeformKernels& ms_deform_attn_kernels() { return tier().functions; }

const char* ms_deform_attn_isa() { return tier().isa; }

}  // namespace hk
