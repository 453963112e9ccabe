// From an element of a row to its distance from the mean, in standard deviations.
#pragma once

#include "hk/device.h"

namespace hk {

// Of a row. The difference of two floats overflows only where the mean is huge: there both are
// halved first.
struct Standardize {
  float half, mean, rest, scale;

  __device__ static Standardize of(float mean, float rest, float rstd) {
    if (fabsf(mean) > 0x1p102f) return {0.5f, mean / 2, rest / 2, rstd * 2};
    return {1, mean, rest, rstd};
  }
  __device__ float operator()(float x) const { return product(fmaf(x, half, -mean) - rest, scale); }
};

}  // namespace hk
