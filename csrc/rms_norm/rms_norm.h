// The RMS norm on device pointers.
//
//   rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps)
//   y[r, c] = x[r, c] * rstd[r] * (weight[c] + offset)
//
// Sums in float; a row whose squares leave its range is summed in double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hk/dtype.h"

namespace hk {

// Tensors are [rows, cols]; y and rstd are contiguous. There is at least one element.
struct RmsNormForward {
  DType dtype;  // of x and y
  const void* x;
  int64_t x_stride;    // elements from row to row
  const void* weight;  // [cols]; null: ones
  DType weight_dtype;  // float, or that of x
  float offset;        // added to the weight
  void* y;
  float* rstd;  // [rows]
  int64_t rows;
  int64_t cols;
  double eps;
};

// Launches on the stream and returns what the launch did; waits for nothing.
cudaError_t rms_norm(const RmsNormForward& args, cudaStream_t stream);

}  // namespace hk
