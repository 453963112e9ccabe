// What the launches of both directions have in common.
#pragma once

#include <algorithm>
#include <limits>

#include "ms_deform_attn/samples.cuh"

namespace hk {

// Where vectors do not fit: lanes of a row, an element each.
constexpr int kScalarGroup = 8;

// Channels that the widest group has at once.
constexpr int kGroupChannels = 32;

inline int64_t rows_of(const DeformInputs& in) { return in.batch * in.queries * in.heads; }

// vector: elements.
inline DeformLaunch launch_of(const DeformInputs& in, int vector,
                              int64_t spread_below = kSpreadRows) {
  return pick_deform_launch(ceil_div(in.channels, vector), kGroupChannels / vector, rows_of(in),
                            spread_below);
}

inline DeformSizes sizes_of(const DeformInputs& in) {
  const auto whole = [](int64_t size) { return static_cast<int>(size); };
  return {whole(in.batch),   whole(in.pixels), whole(in.heads), whole(in.channels),
          whole(in.queries), whole(in.levels), whole(in.points)};
}

template <typename T>
SampleReader<T> reader_of(const DeformInputs& in) {
  const int pair = in.location_type == DType::f32 ? 8 : 4;
  return {in.locations,
          in.weights,
          {in.location_type == DType::f32, in.weight_type == DType::f32},
          reinterpret_cast<uintptr_t>(in.locations) % pair == 0};
}

// One for each run of rows. They are an int: no memory holds the locations of so many rows.
inline unsigned blocks_for(const DeformInputs& in, int rows_per_warp) {
  const int64_t blocks =
      rows_per_warp == 1
          ? ceil_div(rows_of(in), kDeformWarps)
          : in.batch * in.heads * ceil_div(in.queries, int64_t{kDeformWarps} * rows_per_warp);
  return static_cast<unsigned>(blocks);
}

}  // namespace hk
