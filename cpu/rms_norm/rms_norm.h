// The RMS norms on raw pointers: what the binding asks of a tier. Plain data and declarations only,
// since baseline and ISA files share this header.
//
//   forward   rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps),  y[r, c] = x[r, c] * rstd[r] * weight[c]
//   backward  n[r, c] = x[r, c] * rstd[r],  m[r] = mean_c(grad[r, c] * weight[c] * n[r, c])
//             dx[r, c] = rstd[r] * (grad[r, c] * weight[c] - n[r, c] * m[r])
//             dweight[c] = sum_r(grad[r, c] * n[r, c])
//
// With a residual, x + residual, rounded to their type, stands for x. With a gate, x * silu(gate)
// stands for x, or y is multiplied by silu(gate).
//
// Elements are computed in float, row statistics finished in double; each operation rounds once and
// in one order, so every tier gives the same bits.
#pragma once

#include <cstdint>

#include "hk/dtype.h"
#include "hk/tier.h"

namespace hk {

// Tensors are [rows, cols], a stride is in elements from row to row. Outputs without one are
// contiguous.
struct RmsNormForward {
  DType dtype;  // of x, residual, summed and y
  const void* x;
  int64_t x_stride;
  const void* residual;  // null: there is none
  int64_t residual_stride;
  const float* weight;  // [cols]
  void* summed;         // x + residual, where there is a residual; may be residual itself
  int64_t summed_stride;
  void* y;  // may be x itself
  int64_t y_stride;
  float* rstd;  // [rows]; null: not wanted
  int64_t cols;
  double eps;
  bool stream;  // outputs are too large to stay in cache: write around it
};

// dweight is summed per block of rows, so that its bits depend on the shape and not on the threads.
struct WeightSums {
  float* partial;  // [2, blocks, cols]: block sums, then scratch; null: dweight not wanted
  int64_t rows;
  int64_t cols;
  int64_t rows_per_block;
  int64_t blocks;
};

struct RmsNormBackward {
  DType dtype;  // of grad, x, grad_summed and dx
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* grad_summed;  // added to dx; null: nothing is
  int64_t grad_summed_stride;
  const float* weight;  // [cols]
  const float* rstd;    // [rows]
  void* dx;             // null: not wanted
  WeightSums sums;
  bool stream;  // dx is too large to stay in cache: write around it
};

struct GatedRmsNormForward {
  DType dtype;  // of x, gate and y
  const void* x;
  int64_t x_stride;
  const void* gate;
  int64_t gate_stride;
  const float* weight;  // [cols]
  void* y;
  float* rstd;  // [rows]
  int64_t cols;
  double eps;
  bool norm_before_gate;
  bool stream;  // y is too large to stay in cache: write around it
};

struct GatedRmsNormBackward {
  DType dtype;  // of grad, x, gate, dx and dgate
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* gate;
  int64_t gate_stride;
  const float* weight;  // [cols]
  const float* rstd;    // [rows]
  void* dx;             // null: not wanted
  void* dgate;          // null: not wanted
  WeightSums sums;
  bool norm_before_gate;
  bool stream;  // dx and dgate are too large to stay in cache: write around it
};

// Floats that a gated kernel writes and reads for itself, one set for each thread.
constexpr int64_t kGatedForwardRows = 1, kGatedBackwardRows = 2;  // of cols

struct RmsNormKernels {
  // to[c] = from[c] + offset
  void (*widen)(DType dtype, const void* from, float offset, float* to, int64_t cols);
  // Rows [begin, end).
  void (*forward)(const RmsNormForward& args, int64_t begin, int64_t end);
  void (*gated_forward)(const GatedRmsNormForward& args, float* scratch, int64_t begin,
                        int64_t end);
  // Blocks of rows [begin, end).
  void (*backward)(const RmsNormBackward& args, int64_t begin, int64_t end);
  void (*gated_backward)(const GatedRmsNormBackward& args, float* scratch, int64_t begin,
                         int64_t end);
  // dweight[c] = sum of the block sums, for columns [begin, end). Overwrites them.
  void (*sum_blocks)(const WeightSums& sums, DType dtype, void* dweight, int64_t begin,
                     int64_t end);
};

namespace scalar {
extern const Tier<RmsNormKernels> kRmsNorm;
}
namespace avx2 {
extern const Tier<RmsNormKernels> kRmsNorm;
}
namespace avx512 {
extern const Tier<RmsNormKernels> kRmsNorm;
}
namespace avx512_bf16 {
extern const Tier<RmsNormKernels> kRmsNorm;
}

// The tier in use, chosen once a process: HUBKERNELS_ISA, else the best this machine can run.
// Both throw std::runtime_error when HUBKERNELS_ISA names none that can run here.
const RmsNormKernels& rms_norm_kernels();
const char* rms_norm_isa();

}  // namespace hk
