#include "hk/isa.h"
#include "layer_norm.h"

namespace hk {
namespace {

constexpr const Tier<LayerNormKernels>* kTiers[] = {
#if defined(__x86_64__)
    &avx512_bf16::kLayerNorm,
    &avx512::kLayerNorm,
    &avx2::kLayerNorm,
#endif
    &scalar::kLayerNorm,
};

const Tier<LayerNormKernels>& tier() {
  static const Tier<LayerNormKernels>& chosen = choose_tier(kTiers);
  return chosen;
}

}  // namespace

const LayerNormKernels& layer_norm_kernels() { return tier().functions; }

const char* layer_norm_isa() { return tier().isa; }

}  // namespace hk
