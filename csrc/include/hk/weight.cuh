// The weight of a column: its type, whether there is one, and what is added to it.
#pragma once

#include "hk/convert.cuh"
#include "hk/pack.cuh"

namespace hk {

// Elements of float or of the type of x, as dtype tells; data null: there is none, and offset is
// zero. Its type is no template's: a branch that all threads take alike costs less than kernels.
struct AnyWeight {
  const void* data;
  DType dtype;
  float offset;
};

template <int N, typename W, typename Rows>
__device__ inline void read_weight_of(Rows whole, const AnyWeight& weight, int64_t column,
                                      int64_t cols, float (&to)[N]) {
  const Pack<W, N> pack = read<N>(whole, static_cast<const W*>(weight.data), column, cols);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.lane[i]) + weight.offset;
}

// T: the type of x. absent: what stands for a weight where there is none.
template <typename T, typename Rows, int N>
__device__ inline void read_weight(Rows whole, const AnyWeight& weight, int64_t column,
                                   int64_t cols, float absent, float (&to)[N]) {
  if (weight.data == nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = absent;
  } else if (weight.dtype == DType::f32) {
    read_weight_of<N, float>(whole, weight, column, cols, to);
  } else {
    read_weight_of<N, T>(whole, weight, column, cols, to);
  }
}

}  // namespace hk
