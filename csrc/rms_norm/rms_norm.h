// The RMS norms on device pointers: what the bindings ask of the kernels.
//
//   forward   rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps),  y[r, c] = x[r, c] * rstd[r] * weight[c]
//   backward  n[r, c] = x[r, c] * rstd[r],  m[r] = mean_c(grad[r, c] * weight[c] * n[r, c])
//             dx[r, c] = rstd[r] * (grad[r, c] * weight[c] - n[r, c] * m[r])
//             dweight[c] = sum_r(grad[r, c] * n[r, c])
//
// With a residual, x + residual, rounded to their type, stands for x. With a gate, x * silu(gate)
// stands for x, or y is multiplied by silu(gate). weight stands for weight + offset, or ones.
//
// Sums in float; a row whose squares leave its range is summed in double. How terms are added
// depends on rows, cols and dtype alone.
//
// Tensors are [rows, cols], a stride is in elements from row to row. Outputs without one are
// contiguous. There is at least one element. Every function launches on the stream, returns what
// the launches did, and waits for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hk/dtype.h"

namespace hk {

struct NormWeight {
  const void* data;  // [cols]; null: ones
  DType dtype;       // float, or that of x
  float offset;      // added to it
};

struct RmsNormForward {
  DType dtype;  // of x, residual, summed and y
  const void* x;
  int64_t x_stride;
  const void* residual;  // null: there is none
  int64_t residual_stride;
  NormWeight weight;
  void* summed;  // x + residual, where there is a residual; may be residual itself
  int64_t summed_stride;
  void* y;  // may be x itself
  int64_t y_stride;
  float* rstd;  // [rows]; null: not wanted
  int64_t rows;
  int64_t cols;
  double eps;
};

struct RmsNormBackward {
  DType dtype;  // of grad, x, grad_summed and dx
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* grad_summed;  // added to dx; null: nothing is
  int64_t grad_summed_stride;
  NormWeight weight;
  const float* rstd;  // [rows]
  void* dx;           // null: not wanted
  void* dweight;      // [cols], of the weight's dtype; null: not wanted
  float* workspace;   // of as many floats as backward_workspace tells
  int64_t rows;
  int64_t cols;
};

struct GatedRmsNormForward {
  DType dtype;  // of x, gate and y
  const void* x;
  int64_t x_stride;
  const void* gate;
  int64_t gate_stride;
  NormWeight weight;
  void* y;
  float* rstd;  // [rows]
  int64_t rows;
  int64_t cols;
  double eps;
  bool norm_before_gate;
};

struct GatedRmsNormBackward {
  DType dtype;  // of grad, x, gate, dx and dgate
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* gate;
  int64_t gate_stride;
  NormWeight weight;
  const float* rstd;  // [rows]
  void* dx;           // null: not wanted
  void* dgate;        // null: not wanted
  void* dweight;      // [cols], of the weight's dtype; null: not wanted
  float* workspace;   // of as many floats as backward_workspace tells
  int64_t rows;
  int64_t cols;
  bool norm_before_gate;
};

cudaError_t rms_norm(const RmsNormForward& args, cudaStream_t stream);
cudaError_t rms_norm_backward(const RmsNormBackward& args, cudaStream_t stream);
cudaError_t gated_rms_norm(const GatedRmsNormForward& args, cudaStream_t stream);
cudaError_t gated_rms_norm_backward(const GatedRmsNormBackward& args, cudaStream_t stream);

// Floats of memory for sums of groups of rows, and for means of rows that are too long for a block.
int64_t backward_workspace(const RmsNormBackward& args);
int64_t backward_workspace(const GatedRmsNormBackward& args);

}  // namespace hk
