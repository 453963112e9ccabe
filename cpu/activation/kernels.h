// The functions of a tier. Each ISA file includes one lanes_*.h and then this header.
#pragma once

#include "activation.h"
#include "pointwise.h"
#include "rope.h"

namespace hk {
namespace {

constexpr ActivationKernels kKernels = {activation_forward, activation_backward, rope};

}  // namespace
}  // namespace hk
