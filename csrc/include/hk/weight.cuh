// The weight of a column: its type, whether there is one, and what is added to it.
#pragma once

#include "hk/convert.cuh"
#include "hk/pack.cuh"

namespace hk {

// Elements of type W; null: there is none, and offset is zero.
template <typename W>
struct Weight {
  const W* data;
  float offset;
};

// Of any type: for kernels that read it seldom, or seldom run.
struct AnyWeight {
  const void* data;
  DType dtype;
  float offset;
};

// absent: what stands for it where there is none.
template <bool kWhole, int N, typename W>
__device__ inline void read_weight(const Weight<W>& weight, int64_t column, int64_t cols,
                                   float absent, float (&to)[N]) {
  if (weight.data == nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = absent;
    return;
  }
  const Pack<W, N> pack = read<kWhole, N>(weight.data, column, cols);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.lane[i]) + weight.offset;
}

// T: what it is where it is not float. There it is like x.
template <bool kWhole, typename T, int N>
__device__ inline void read_weight(const AnyWeight& weight, int64_t column, int64_t cols,
                                   float absent, float (&to)[N]) {
  if (weight.data == nullptr || weight.dtype == DType::f32) {
    read_weight<kWhole>(Weight<float>{static_cast<const float*>(weight.data), weight.offset},
                        column, cols, absent, to);
  } else {
    read_weight<kWhole>(Weight<T>{static_cast<const T*>(weight.data), weight.offset}, column, cols,
                        absent, to);
  }
}

}  // namespace hk
