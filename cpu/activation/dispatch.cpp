#include "activation.h"
#include "hk/isa.h"

namespace hk {
namespace {

constexpr const Tier<ActivationKernels>* kTiers[] = {
#if defined(__x86_64__)
    &avx512_bf16::kActivation,
    &avx512::kActivation,
    &avx2::kActivation,
#endif
    &scalar::kActivation,
};

const Tier<ActivationKernels>& tier() {
  static const Tier<ActivationKernels>& chosen = choose_tier(kTiers);
  return chosen;
}

}  // namespace

const ActivationKernels& activation_kernels() { return tier().functions; }

const char* activation_isa() { return tier().isa; }

}  // namespace hk
