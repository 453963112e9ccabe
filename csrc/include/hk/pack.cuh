// Elements that are loaded and stored together: the vector width is a type.
#pragma once

#include <cstdint>

namespace hk {

// Bytes of the widest access of one thread.
constexpr int kWidest = 16;

template <typename T, int N>
struct alignas(sizeof(T) * N < kWidest ? sizeof(T) * N : kWidest) Pack {
  T lane[N];
};

template <typename T, int N>
__device__ inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <typename T, int N>
__device__ inline void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kWidest == 0; }

}  // namespace hk
