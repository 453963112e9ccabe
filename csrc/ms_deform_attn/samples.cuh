// What both directions share: maps, rows of a warp, and the corners of samples.
#pragma once

#include "hk/convert.cuh"
#include "hk/words.cuh"
#include "ms_deform_attn/launch.h"
#include "ms_deform_attn/ms_deform_attn.h"

namespace hk {

constexpr unsigned kNotANumber = 0x7fc00000u;

// The sizes of a call as kernels count. The bytes of one pixel of all heads are an int too.
struct DeformSizes {
  int batch, pixels, heads, channels, queries, levels, points;

  __device__ int samples() const { return levels * points; }
};

struct Map {
  int height, width, start;
};

// For every thread of the block. False where the maps are not those of value.
__device__ inline bool read_maps(const DeformMaps& given, int levels, int pixels, Map* maps) {
  bool right = true;
  for (int l = threadIdx.x; l < levels; l += blockDim.x) {
    const int64_t height = given.shapes == nullptr ? given.heights[l] : given.shapes[2 * l];
    const int64_t width = given.shapes == nullptr ? given.widths[l] : given.shapes[2 * l + 1];
    right = right && height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide;
    maps[l].height = static_cast<int>(height);
    maps[l].width = static_cast<int>(width);
  }
  right = __syncthreads_and(right);
  if (!right) return false;
  for (int l = threadIdx.x; l < levels; l += blockDim.x) {
    int64_t start = 0;
    for (int before = 0; before < l; ++before)
      start += int64_t{maps[before].height} * maps[before].width;
    if (given.starts != nullptr) right = right && given.starts[l] == start;
    if (given.has_starts) right = right && given.given_starts[l] == start;
    if (l == levels - 1) right = right && start + int64_t{maps[l].height} * maps[l].width == pixels;
    maps[l].start = static_cast<int>(start);
  }
  return __syncthreads_and(right);
}

// One element of a tensor whose type only the host knows.
__device__ inline float load_float(const void* from, DType type, int64_t i) {
  switch (type) {
    case DType::bf16:
      return to_float(static_cast<const __nv_bfloat16*>(from)[i]);
    case DType::f16:
      return to_float(static_cast<const __half*>(from)[i]);
    default:
      return static_cast<const float*>(from)[i];
  }
}

__device__ inline void store_float(void* to, DType type, int64_t i, float v) {
  switch (type) {
    case DType::bf16:
      static_cast<__nv_bfloat16*>(to)[i] = from_float<__nv_bfloat16>(v);
      break;
    case DType::f16:
      static_cast<__half*>(to)[i] = from_float<__half>(v);
      break;
    default:
      static_cast<float*>(to)[i] = v;
  }
}

template <typename T>
__device__ inline float2 load_pair(const T* from, int64_t pair) {
  const auto both = load<T, 2>(from + 2 * pair);
  return {to_float(both.lane[0]), to_float(both.lane[1])};
}

template <typename T>
__device__ inline void store_pair(T* to, int64_t pair, float2 v) {
  store(to + 2 * pair, Pack<T, 2>{{from_float<T>(v.x), from_float<T>(v.y)}});
}

// At a multiple of two elements.
__device__ inline void store_pair(void* to, DType type, int64_t pair, float2 v) {
  switch (type) {
    case DType::bf16:
      return store_pair(static_cast<__nv_bfloat16*>(to), pair, v);
    case DType::f16:
      return store_pair(static_cast<__half*>(to), pair, v);
    default:
      return store_pair(static_cast<float*>(to), pair, v);
  }
}

// aligned: to two elements.
__device__ inline float2 load_pair(const void* from, DType type, bool aligned, int64_t pair) {
  if (!aligned) return {load_float(from, type, 2 * pair), load_float(from, type, 2 * pair + 1)};
  switch (type) {
    case DType::bf16:
      return load_pair(static_cast<const __nv_bfloat16*>(from), pair);
    case DType::f16:
      return load_pair(static_cast<const __half*>(from), pair);
    default:
      return load_pair(static_cast<const float*>(from), pair);
  }
}

// A sample's location and weight. Whether there is one is told by the location: NaN is nowhere.
struct Sample {
  float x, y, weight;
};

struct SampleReader {
  const void* locations;
  const void* weights;
  DType location_type, weight_type;
  bool pairs;  // locations are aligned to pairs

  __device__ Sample operator()(int64_t i) const {
    const float2 at = load_pair(locations, location_type, pairs, i);
    return {at.x, at.y, load_float(weights, weight_type, i)};
  }
  __device__ static Sample none() {
    const float nan = __uint_as_float(kNotANumber);
    return {nan, nan, 0};
  }
};

// Upper left, upper right, lower left, lower right.
struct Corners {
  int pixel[4];  // within value; -1 where the corner does not exist
  float fx, fy;  // 0 where none exists
};

// The whole pixel before location * extent - 1/2, and in `rest` what is left, rounded once. The
// rounded product may have come up to the next pixel; then what is left is below zero.
__device__ inline float whole_before(float location, float extent, float& rest) {
  float whole = floorf(fmaf(location, extent, -0.5f));
  rest = fmaf(location, extent, -0.5f - whole);
  if (rest < 0) {
    whole -= 1;
    rest = fmaf(location, extent, -0.5f - whole);
  }
  return whole;
}

__device__ inline Corners find_corners(const Sample& sample, const Map& map) {
  const auto width = static_cast<float>(map.width), height = static_cast<float>(map.height);
  Corners corners;
  const float left = whole_before(sample.x, width, corners.fx);
  const float upper = whole_before(sample.y, height, corners.fy);
  // False for NaN, so that nothing below is out of the range of an int.
  const bool inside =
      -1 < left + corners.fx && left < width && -1 < upper + corners.fy && upper < height;
  if (!inside) return {{-1, -1, -1, -1}, 0, 0};
  const int column = static_cast<int>(left), line = static_cast<int>(upper);
  const int pixel = map.start + line * map.width + column;
  const bool has_left = column >= 0, has_right = column + 1 < map.width;
  const bool has_upper = line >= 0, has_lower = line + 1 < map.height;
  corners.pixel[0] = has_left && has_upper ? pixel : -1;
  corners.pixel[1] = has_right && has_upper ? pixel + 1 : -1;
  corners.pixel[2] = has_left && has_lower ? pixel + map.width : -1;
  corners.pixel[3] = has_right && has_lower ? pixel + map.width + 1 : -1;
  return corners;
}

// What a warp's lanes tell each other of one sample.
struct alignas(16) Record {
  int pixel[4];
  float factor[4];  // coefficient * weight; 0 where the corner does not exist
};

__device__ inline Record record_of(const Corners& corners, float weight) {
  const float gx = 1 - corners.fx, gy = 1 - corners.fy;
  const float factor[4] = {gx * gy, corners.fx * gy, gx * corners.fy, corners.fx * corners.fy};
  Record record;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    record.pixel[c] = corners.pixel[c];
    record.factor[c] = corners.pixel[c] < 0 ? 0 : factor[c] * weight;
  }
  return record;
}

template <typename T>
__device__ inline const T* pixel_at(const T* first, int pixel, int pixel_bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) +
                                    int64_t{pixel} * pixel_bytes);
}

template <typename T>
__device__ inline void fill_nan(T* to, int64_t count) {
  const T nan = from_float<T>(__uint_as_float(kNotANumber));
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x)
    to[i] = nan;
}

// The rows of a warp: queries of one head of one image.
struct WarpRows {
  int image, head;
  int first, end;           // of a run of queries; first: of a map
  int x, y, width, height;  // of a tile; width 0: a run

  // -1 for a row that does not exist.
  __device__ int query(int row) const {
    if (width == 0) return row < end - first ? first + row : -1;
    const int column = x + row % kWarpTileWidth, line = y + row / kWarpTileWidth;
    return column < width && line < height ? first + line * width + column : -1;
  }
};

// The tile of that number among those of all levels: its map, and its first pixel there.
struct TilePlace {
  int level, x, y;
};

__device__ inline TilePlace find_tile(const Map* maps, int number, int rows_per_warp) {
  int level = 0;
  for (int count;
       number >=
       (count = static_cast<int>(tiles_of(maps[level].height, maps[level].width, rows_per_warp)));
       ++level)
    number -= count;
  const int across = static_cast<int>(ceil_div(maps[level].width, kTileWidth));
  return {level, number % across * kTileWidth, number / across * tile_height(rows_per_warp)};
}

// The work of all blocks, in items: what one block has at once. There are fewer than 2^31, since no
// memory holds the locations of so many rows.
template <int kRows>
struct Work {
  static constexpr bool kShared = kRows == 1;
  int per_head, items;

  __device__ Work(const DeformSizes& in, const Map* maps, bool tiles) {
    if constexpr (kShared) {
      per_head = 0;
      items = static_cast<int>(ceil_div(int64_t{in.batch} * in.queries * in.heads, kDeformWarps));
    } else {
      per_head = tiles ? 0 : static_cast<int>(ceil_div(in.queries, kDeformWarps * kRows));
      for (int l = 0; tiles && l < in.levels; ++l)
        per_head += static_cast<int>(tiles_of(maps[l].height, maps[l].width, kRows));
      items = in.batch * in.heads * per_head;
    }
  }

  __device__ WarpRows rows(const DeformSizes& in, const Map* maps, bool tiles, int item) const {
    const int warp = threadIdx.x / kWarp;
    if constexpr (kShared) {  // heads next to each other are next to each other in memory
      const int row = item * kDeformWarps + warp, query = row / in.heads;
      const int image = query / in.queries, first = query % in.queries;
      return {image, row % in.heads, first, image < in.batch ? first + 1 : first, 0, 0, 0, 0};
    } else {
      const int head = item / per_head;
      WarpRows found = {head / in.heads, head % in.heads, 0, in.queries, 0, 0, 0, 0};
      const int place = item % per_head;
      if (!tiles) {
        found.first = (place * kDeformWarps + warp) * kRows;
        return found;
      }
      const TilePlace tile = find_tile(maps, place, kRows);
      constexpr int kAbreast = kTileWidth / kWarpTileWidth;
      found.first = maps[tile.level].start;
      found.width = maps[tile.level].width;
      found.height = maps[tile.level].height;
      found.x = tile.x + warp % kAbreast * kWarpTileWidth;
      found.y = tile.y + warp / kAbreast * (kRows / kWarpTileWidth);
      return found;
    }
  }
};

// A row's place among all: [batch, queries, heads].
__device__ inline int64_t row_of(const DeformSizes& in, const WarpRows& rows, int query) {
  return (int64_t{rows.image} * in.queries + query) * in.heads + rows.head;
}

}  // namespace hk
