// Activations and rotary embedding on raw pointers: what the binding asks of a tier. Plain data and
// declarations only, since baseline and ISA files share this header.
//
//   y = a(x)  or, gated,  y = a(x) * up
//     dx = grad * a'(x)  or  grad * up * a'(x),  dup = grad * a(x)
//
//   rope   pairs (x1, x2) of a head:  y1 = x1 * cos1 - x2 * sin1,  y2 = x2 * cos2 + x1 * sin2
//   its transpose                     y1 = x1 * cos1 + x2 * sin2,  y2 = x2 * cos2 - x1 * sin1
//
// Elements are computed in float; each operation rounds once and in one order, so every tier gives
// the same bits.
#pragma once

#include <cstdint>

#include "hk/dtype.h"
#include "hk/tier.h"

namespace hk {

enum class Activation : int {
  silu,        // x / (1 + e^-x)
  gelu,        // x * (1 + erf(x / sqrt(2))) / 2
  gelu_tanh,   // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2
  quick_gelu,  // x / (1 + e^(-1.702 x))
};

// Each of x and up: [rows, cols], a stride of elements from row to row.
struct ActivationForward {
  DType dtype;
  Activation activation;
  const void* x;
  int64_t x_stride;
  const void* up;  // null: not gated
  int64_t up_stride;
  void* y;  // [rows, cols], contiguous
  int64_t cols;
  bool stream;  // y is too large to stay in cache: write around it
};

struct ActivationBackward {
  DType dtype;
  Activation activation;
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* up;  // null: not gated
  int64_t up_stride;
  void* dx;  // null: not wanted
  int64_t dx_stride;
  void* dup;  // null: not wanted
  int64_t dup_stride;
  int64_t cols;
  bool stream;  // dx and dup are too large to stay in cache: write around it
};

// [batches, tokens, heads, head_dim] with elements of a head next to each other; strides in
// elements.
struct RopeHeads {
  const void* x;
  int64_t x_batch, x_token, x_head;
  void* y;
  int64_t y_batch, y_token, y_head;
  int64_t heads;
};

struct Rope {
  DType dtype;        // of x and y
  DType table_dtype;  // of cos and sin
  RopeHeads q, k;
  // The row of a token starts at batch * cos_batch + row * cos_row, where row is the token's number
  // or, where rows is not null, rows[batch * tokens + token].
  const void* cos;
  const void* sin;
  int64_t cos_batch, cos_row, sin_batch, sin_row;
  const int64_t* rows;
  int64_t tokens;
  int64_t head_dim;
  int64_t rotary_dim;  // the first so many elements of a head are rotated, the others copied
  bool once;           // cos and sin have one column for each pair, not one for each element
  bool interleaved;    // a pair is (x[2i], x[2i + 1]), not (x[i], x[i + rotary_dim / 2])
  bool transposed;
  bool stream;  // q.y and k.y are too large to stay in cache: write around it
};

struct ActivationKernels {
  // Elements [begin, end), counted row by row.
  void (*forward)(const ActivationForward& args, int64_t begin, int64_t end);
  void (*backward)(const ActivationBackward& args, int64_t begin, int64_t end);
  // Tokens [begin, end), counted batch by batch.
  void (*rope)(const Rope& args, int64_t begin, int64_t end);
};

namespace scalar {
extern const Tier<ActivationKernels> kActivation;
}
namespace avx2 {
extern const Tier<ActivationKernels> kActivation;
}
namespace avx512 {
extern const Tier<ActivationKernels> kActivation;
}
namespace avx512_bf16 {
extern const Tier<ActivationKernels> kActivation;
}

// The tier in use, chosen once a process: HUBKERNELS_ISA, else the best this machine can run.
// Both throw std::runtime_error when HUBKERNELS_ISA names none that can run here.
const ActivationKernels& activation_kernels();
const char* activation_isa();

}  // namespace hk
