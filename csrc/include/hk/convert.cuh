// Elements in memory and in computations.
#pragma once

#include "hk/device.h"
#include "hk/dtype.h"

namespace hk {

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) {
  return v;
}
template <>
__device__ inline __half from_float<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls f with the tag of the type that dtype names.
template <typename F>
auto with_float_type(DType dtype, F f) {
  switch (dtype) {
    case DType::bf16:
      return f(TypeTag<__nv_bfloat16>{});
    case DType::f16:
      return f(TypeTag<__half>{});
    default:
      return f(TypeTag<float>{});
  }
}

}  // namespace hk
