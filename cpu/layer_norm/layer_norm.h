// Layer norm on raw pointers: what the binding asks of a tier. Plain data and declarations only,
// since baseline and ISA files share this header.
//
//   forward   mean[r] = mean_c(x[r, c]),  rstd[r] = 1 / sqrt(mean_c((x[r, c] - mean[r])^2) + eps)
//             y[r, c] = n[r, c] * weight[c] + bias[c],  n[r, c] = (x[r, c] - mean[r]) * rstd[r]
//   backward  g[r, c] = grad[r, c] * weight[c],  a[r] = mean_c(g[r, c]),  b[r] = mean_c(g * n)
//             dx[r, c] = rstd[r] * (g[r, c] - a[r] - n[r, c] * b[r])
//             dweight[c] = sum_r(grad[r, c] * n[r, c]),  dbias[c] = sum_r(grad[r, c])
//
// Elements are computed in float, row statistics finished in double; each operation rounds once and
// in one order, so every tier gives the same bits.
#pragma once

#include <cstdint>

#include "hk/dtype.h"
#include "hk/tier.h"

namespace hk {

struct LayerNormForward {
  DType dtype;    // of x and y
  const void* x;  // [rows, cols], x_stride elements from row to row
  int64_t x_stride;
  const float* weight;  // [cols]
  const float* bias;    // [cols]
  void* y;              // [rows, cols], contiguous
  float* mean;          // [rows]
  float* mean_rest;     // [rows], what rounding left of the mean: far from zero it counts
  float* rstd;          // [rows]
  int64_t cols;
  double eps;
  bool stream;  // y is too large to stay in cache: write around it
};

// dweight and dbias are summed per block of rows, so that their bits depend on the shape and not on
// the threads. A block has one row of sums: those of dweight, then those of dbias.
struct LayerNormBackward {
  DType dtype;       // of grad, x and dx
  const void* grad;  // [rows, cols], grad_stride elements from row to row
  int64_t grad_stride;
  const void* x;  // [rows, cols], x_stride elements from row to row
  int64_t x_stride;
  const float* weight;     // [cols]
  const float* mean;       // [rows]
  const float* mean_rest;  // [rows]
  const float* rstd;       // [rows]
  void* dx;                // [rows, cols], contiguous; null: not wanted
  float* partial;          // [2, blocks, wanted sums * cols]: block sums, then scratch
  bool want_dweight;
  bool want_dbias;
  int64_t rows;
  int64_t cols;
  int64_t rows_per_block;
  int64_t blocks;
  bool stream;  // dx is too large to stay in cache: write around it
};

struct LayerNormKernels {
  // to[c] = from[c] + offset
  void (*widen)(DType dtype, const void* from, float offset, float* to, int64_t cols);
  // Rows [begin, end).
  void (*forward)(const LayerNormForward& args, int64_t begin, int64_t end);
  // Blocks of rows [begin, end).
  void (*backward)(const LayerNormBackward& args, int64_t begin, int64_t end);
  // to[c] = sum of sums[block * stride + c] over the blocks, for columns [begin, end). Overwrites
  // the sums.
  void (*sum_blocks)(float* sums, int64_t blocks, int64_t stride, DType dtype, void* to,
                     int64_t begin, int64_t end);
};

namespace scalar {
extern const Tier<LayerNormKernels> kLayerNorm;
}
namespace avx2 {
extern const Tier<LayerNormKernels> kLayerNorm;
}
namespace avx512 {
extern const Tier<LayerNormKernels> kLayerNorm;
}
namespace avx512_bf16 {
extern const Tier<LayerNormKernels> kLayerNorm;
}

// The tier in use, chosen once a process: HUBKERNELS_ISA, else the best this machine can run.
// Both throw std::runtime_error when HUBKERNELS_ISA names none that can run here.
const LayerNormKernels& layer_norm_kernels();
const char* layer_norm_isa();

}  // namespace hk
