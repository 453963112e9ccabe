// Elements that are loaded and stored together: the vector width is a type.
#pragma once

#include <cstdint>
#include <cstring>

namespace hk {

// Bytes of the widest access of one thread.
constexpr int kWidest = 16;

template <typename T>
constexpr int kLanes = kWidest / static_cast<int>(sizeof(T));

template <typename T, int N = kLanes<T>>
struct alignas(sizeof(T) * N < kWidest ? sizeof(T) * N : kWidest) Pack {
  T lane[N];
};

template <int kBytes>
struct alignas(kWidest) Words {
  uint32_t word[kBytes / sizeof(uint32_t)];
};

// Where every row of every tensor begins and ends at a vector; bool where the launch tells.
struct Whole {
  __host__ __device__ constexpr operator bool() const { return true; }
};

// The vector of a row that begins at column. Where rows are whole it is one access, else there is
// one for each lane. Lanes behind the row are zero.
template <int N, typename Rows, typename T>
__device__ inline Pack<T, N> read(Rows whole, const T* row, int64_t column, int64_t cols) {
  Pack<T, N> pack;
  if (whole) {
    // As words: lanes that are made zero one by one take a register each.
    Words<sizeof(pack)> words{};
    if (column < cols) words = *reinterpret_cast<const Words<sizeof(pack)>*>(row + column);
    memcpy(&pack, &words, sizeof(pack));
  } else {
    pack = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (column + i < cols) pack.lane[i] = row[column + i];
    }
  }
  return pack;
}

template <typename Rows, int N, typename T>
__device__ inline void write(Rows whole, T* row, int64_t column, int64_t cols,
                             const Pack<T, N>& pack) {
  if (whole) {
    if (column < cols) *reinterpret_cast<Pack<T, N>*>(row + column) = pack;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (column + i < cols) row[column + i] = pack.lane[i];
    }
  }
}

inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kWidest == 0; }

// Rows of a tensor as a launcher checks them: pointer, and elements from row to row. A null pointer
// is no tensor.
struct RowsAt {
  const void* data;
  int64_t stride;
};

// Whether every row of each begins and ends at a vector of so many elements.
template <typename... Tensors>
bool at_vectors(int lanes, int64_t rows, int64_t cols, const Tensors&... tensors) {
  const auto fits = [&](const RowsAt& t) {
    return t.data == nullptr || (is_aligned(t.data) && (rows == 1 || t.stride % lanes == 0));
  };
  return cols % lanes == 0 && (fits(tensors) && ...);
}

}  // namespace hk
