// Vectors of elements as the 32-bit words they travel in. A struct of 16-bit elements is taken
// apart by the compiler as it is loaded, and needs twice the registers.
#pragma once

#include "hk/convert.cuh"
#include "hk/pack.cuh"

namespace hk {

__device__ inline float low_float(uint32_t word, __nv_bfloat16) {
  return __uint_as_float(word << 16);
}
__device__ inline float high_float(uint32_t word, __nv_bfloat16) {
  return __uint_as_float(word & 0xffff0000u);
}
__device__ inline float low_float(uint32_t word, __half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu)));
}
__device__ inline float high_float(uint32_t word, __half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
}

template <typename T, int N>
struct Words {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * N;
  Pack<uint32_t, (kBytes + 3) / 4> words;

  __device__ void load_from(const T* from) {
    if constexpr (kBytes < 4) {
      words.lane[0] = *reinterpret_cast<const uint16_t*>(from);
    } else {
      words = load<uint32_t, kBytes / 4>(reinterpret_cast<const uint32_t*>(from));
    }
  }
  // i: known to the compiler.
  __device__ float at(int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words.lane[i]);
    } else {
      const uint32_t word = words.lane[i / 2];
      return i % 2 == 0 ? low_float(word, T{}) : high_float(word, T{});
    }
  }
};

}  // namespace hk
