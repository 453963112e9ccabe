// Multi-scale deformable attention on raw pointers: what the binding asks of a tier. Plain data and
// declarations only, since baseline and ISA files share this header.
//
// A level of height H and width W is a map of H * W pixels; the levels lie one behind the other. A
// sample at (x, y) reads the map bilinearly at pixel (x * W - 0.5, y * H - 0.5), whose four corners
// have the coefficients (1 - fx)(1 - fy), fx (1 - fy), (1 - fx) fy and fx fy, with fx and fy the
// fractions. A corner outside the map does not exist: it adds nothing and gets nothing. A sample
// whose location is not finite has no corner.
//
//   forward   out[b, q, h] = sum over levels, points and corners of
//                            coefficient * weight[b, q, h, level, point] * value[b, corner, h]
//   backward  dot = value[b, corner, h] . grad[b, q, h] for each corner
//             grad_weight  = sum over corners of coefficient * dot
//             grad_x, grad_y = weight * (W, H) * (the coefficient's derivative by fx, by fy) * dot
//             grad_value[b, corner, h] += coefficient * weight * grad[b, q, h]
//
// Everything is computed in float; each operation rounds once and in one order, so every tier gives
// the same bits, for any cut of the work.
#pragma once

#include <cstdint>

#include "hk/dtype.h"
#include "hk/tier.h"

namespace hk {

// What both directions read. All tensors are contiguous; no size is zero.
struct DeformInputs {
  DType value_type, location_type, weight_type;
  const void* value;       // [batch, pixels, heads, channels]
  const void* locations;   // [batch, queries, heads, levels, points, 2], x before y
  const void* weights;     // [batch, queries, heads, levels, points]
  const int64_t* heights;  // [levels], at most 2^22 each, as widths
  const int64_t* widths;   // [levels]
  int64_t batch, pixels, heads, channels, queries, levels, points;
  const void* zero_pixel;  // [channels], zeros of value's type: what a corner outside the map reads
};

struct DeformForward {
  DeformInputs in;
  void* out;    // [batch, queries, heads, channels], of value's type
  bool packed;  // read a copy of one head's values in float, else the values where they are
  bool stream;  // packed: out is too large to stay in cache, write around it
};

// The gradient of value is summed in `chunks` runs of queries, so that its bits depend on the shape
// and not on the threads.
struct DeformBackward {
  DeformInputs in;
  const void* grad;      // [batch, queries, heads, channels], of value's type
  void* grad_value;      // null where not wanted, as are the other two
  void* grad_locations;  // each of the type of its input
  void* grad_weights;
  float* partial;  // [batch, heads, chunks, pixels + 1, padded channels]; null for one chunk
  int64_t chunks;
  int64_t queries_per_chunk;
  bool stream;  // grad_value is too large to stay in cache: write around it
};

struct DeformKernels {
  // Floats of scratch that one thread needs, at the start of a cache line.
  int64_t (*forward_scratch)(const DeformForward& args);
  int64_t (*backward_scratch)(const DeformBackward& args);
  // Queries [begin, end) of all heads of all images: head by head when packed, else query by query.
  void (*forward)(const DeformForward& args, float* scratch, int64_t begin, int64_t end);
  // Chunks [begin, end) of all heads of all images.
  void (*backward)(const DeformBackward& args, float* scratch, int64_t begin, int64_t end);
  // grad_value from `partial`, for pixels [begin, end) of all heads of all images.
  void (*sum_chunks)(const DeformBackward& args, int64_t begin, int64_t end);
};

namespace scalar {
extern const Tier<DeformKernels> kMsDeformAttn;
}
namespace avx2 {
extern const Tier<DeformKernels> kMsDeformAttn;
}
namespace avx512 {
extern const Tier<DeformKernels> kMsDeformAttn;
}
namespace avx512_bf16 {
extern const Tier<DeformKernels> kMsDeformAttn;
}

// Channels of a packed pixel: whole vectors.
constexpr int64_t kDeformLanes = 16;

// The tier in use, chosen once a process: HUBKERNELS_ISA, else the best this machine can run.
// Both throw std::runtime_error when HUBKERNELS_ISA names none that can run here.
const DeformKernels& ms_deform_attn_kernels();
const char* ms_deform_attn_isa();

}  // namespace hk
