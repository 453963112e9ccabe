// silu(v) = v / (1 + exp(-v)) and its derivative.
#pragma once

#include "hk/device.h"

namespace hk {

struct WithSlope {
  float value, slope;
};

// From here on down exp is zero in float, and so is silu: its limit, also of -inf.
constexpr float kSiluMin = -110.0f;

// By exp(-|v|), which cannot overflow. With s = 1 / (1 + exp(-v)) the slope is s + v s (1 - s).
__device__ inline WithSlope silu(float v) {
  const float low = fmaxf(-fabsf(v), kSiluMin);
  const float e = expf(low), share = reciprocal(1 + e);
  const float rest = product(e, share);                   // 1 - share
  const float bend = product(low, product(rest, share));  // -|v| s (1 - s)
  if (v < 0) return {product(low, rest), rest + bend};
  return {product(v, share), share - bend};
}

}  // namespace hk
