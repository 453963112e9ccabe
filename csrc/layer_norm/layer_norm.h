// Layer norm on device pointers: what the binding asks of the kernels.
//
//   forward   mean[r] = mean_c(x[r, c]),  rstd[r] = 1 / sqrt(mean_c((x[r, c] - mean[r])^2) + eps)
//             y[r, c] = n[r, c] * weight[c] + bias[c],  n[r, c] = (x[r, c] - mean[r]) * rstd[r]
//   backward  g[r, c] = grad[r, c] * weight[c],  a[r] = mean_c(g[r, c]),  b[r] = mean_c(g * n)
//             dx[r, c] = rstd[r] * (g[r, c] - a[r] - n[r, c] * b[r])
//             dweight[c] = sum_r(grad[r, c] * n[r, c]),  dbias[c] = sum_r(grad[r, c])
//
// Sums in float, of distances from an element of the row and then from its mean, so that a mean far
// from zero costs no digits; a row that leaves their range is summed in double. How terms are added
// depends on rows, cols and dtype alone.
//
// Tensors are [rows, cols], a stride is in elements from row to row. Outputs are contiguous. There
// is at least one element. Both functions launch on the stream, return what the launches did, and
// wait for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hk/dtype.h"

namespace hk {

// Of float, or of the type of x.
struct NormParameter {
  const void* data;  // [cols]; null: ones for a weight, zeros for a bias
  DType dtype;
};

struct LayerNormForward {
  DType dtype;  // of x and y
  const void* x;
  int64_t x_stride;
  NormParameter weight;
  NormParameter bias;
  void* y;
  float* mean;       // [rows]
  float* mean_rest;  // [rows], what rounding left of the mean: far from zero it counts
  float* rstd;       // [rows]
  int64_t rows;
  int64_t cols;
  double eps;
};

struct LayerNormBackward {
  DType dtype;  // of grad, x and dx
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  NormParameter weight;
  const float* mean;       // [rows]
  const float* mean_rest;  // [rows]
  const float* rstd;       // [rows]
  void* dx;                // null: not wanted
  void* dweight;           // [cols]; null: not wanted
  DType dweight_dtype;
  void* dbias;  // [cols]; null: not wanted
  DType dbias_dtype;
  float* workspace;  // of as many floats as backward_workspace tells
  int64_t rows;
  int64_t cols;
};

cudaError_t layer_norm(const LayerNormForward& args, cudaStream_t stream);
cudaError_t layer_norm_backward(const LayerNormBackward& args, cudaStream_t stream);

// Floats of memory for sums of groups of rows, and for means of rows.
int64_t backward_workspace(const LayerNormBackward& args);

}  // namespace hk
