// Multi-scale deformable attention on device pointers. The formulas, and what a corner outside its
// map and a location that is not finite add, are those of cpu/ms_deform_attn/ms_deform_attn.h.
//
// Coordinates, coefficients and sums are float whatever the types; results are rounded once. All
// but the gradient of value has the same bits from run to run; that one is summed by atomics, in
// float in no fixed order, or as DeformBackward::exact says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hk/dtype.h"

namespace hk {

// Sizes travel in the kernel's parameters, and stand in shared memory.
constexpr int kMaxLevels = 64;

// A side that counts with whole pixels exactly in float, and pixels that an int counts.
constexpr int64_t kMaxSide = int64_t{1} << 22;
constexpr int64_t kMaxPixels = int64_t{1} << 30;

// The maps. What is on the device is read by the kernels and not waited for: where it does not fit
// value every result is NaN, and nothing else is read.
struct DeformMaps {
  const int64_t* shapes;  // device [levels, 2], height before width; null: heights and widths
  const int64_t* starts;  // device [levels]; null: given_starts
  int32_t heights[kMaxLevels];
  int32_t widths[kMaxLevels];
  int32_t given_starts[kMaxLevels];
  bool has_starts;  // in given_starts
};

// Tensors are contiguous, at any address of their elements; no size is zero, each is an int, and so
// are 4 * heads * channels and levels * points.
struct DeformInputs {
  DType value_type, location_type, weight_type;  // the others: value's, or f32
  const void* value;                             // [batch, pixels, heads, channels]
  const void* locations;  // [batch, queries, heads, levels, points, 2], x before y
  const void* weights;    // [batch, queries, heads, levels, points]
  int64_t batch, pixels, heads, channels, queries, levels, points;
  DeformMaps maps;
};

struct DeformForward {
  DeformInputs in;
  void* out;  // [batch, queries, heads, channels], of value's type
};

struct DeformBackward {
  DeformInputs in;
  const void* grad;      // [batch, queries, heads, channels], of value's type
  void* grad_value;      // null where not wanted, as are the other two
  void* grad_locations;  // each of the type of its input
  void* grad_weights;
  // Device memory of deform_workspace() bytes at a multiple of 16, to sum the gradient of value in:
  // in float where that is of 16 bits; where it shall be exact, in integers, whose sum has no
  // order.
  void* workspace;
  bool exact;
};

int64_t deform_workspace(const DeformBackward& args);

// Both launch on the stream and return what the launches did; they wait for nothing.
cudaError_t ms_deform_attn(const DeformForward& args, cudaStream_t stream);
cudaError_t ms_deform_attn_backward(const DeformBackward& args, cudaStream_t stream);

}  // namespace hk
