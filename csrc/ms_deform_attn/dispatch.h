// What the launches of both directions have in common.
#pragma once

#include <algorithm>
#include <limits>

#include "ms_deform_attn/samples.cuh"

namespace hk {

// Where vectors do not fit: lanes of a row, an element each.
constexpr int kScalarGroup = 8;

inline DeformLaunch launch_of(const DeformInputs& in, int vector, int widest) {
  DeformLaunch shape =
      pick_deform_launch(ceil_div(in.channels, vector), widest, in.batch * in.queries * in.heads,
                         in.queries == in.pixels);
  if (vector == 1 && shape.rows_per_warp != 1) shape.rows_per_warp = 8;
  return shape;
}

inline DeformSizes sizes_of(const DeformInputs& in) {
  const auto whole = [](int64_t size) { return static_cast<int>(size); };
  return {whole(in.batch),   whole(in.pixels), whole(in.heads), whole(in.channels),
          whole(in.queries), whole(in.levels), whole(in.points)};
}

inline SampleReader reader_of(const DeformInputs& in) {
  const int pair = in.location_type == DType::f32 ? 8 : 4;
  return {in.locations, in.weights, in.location_type, in.weight_type,
          reinterpret_cast<uintptr_t>(in.locations) % pair == 0};
}

// Tiles are counted where the sizes are known, else guessed: blocks take more than one where there
// are more, and those without one leave.
inline int64_t blocks_for(const DeformInputs& in, int rows_per_warp, bool tiles) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t rows = in.batch * in.queries * in.heads;
  if (rows_per_warp == 1) return std::min(kMost, ceil_div(rows, kDeformWarps));
  const int64_t queries = int64_t{kDeformWarps} * rows_per_warp;
  int64_t per_head = ceil_div(in.queries, queries);
  if (tiles && in.maps.shapes != nullptr) per_head += per_head / 8 + 2 * in.levels;
  if (tiles && in.maps.shapes == nullptr) {
    per_head = 0;
    for (int l = 0; l < in.levels; ++l)
      per_head += tiles_of(in.maps.heights[l], in.maps.widths[l], rows_per_warp);
  }
  return std::min(kMost, in.batch * in.heads * per_head);
}

}  // namespace hk
