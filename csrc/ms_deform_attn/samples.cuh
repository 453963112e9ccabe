// What both directions share: maps, rows of a warp, and the corners of samples.
#pragma once

#include "hk/convert.cuh"
#include "hk/words.cuh"
#include "ms_deform_attn/launch.h"
#include "ms_deform_attn/ms_deform_attn.h"

namespace hk {

// For sm_100 and later ptxas takes a few registers more, and would spill them with as many blocks.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kFewerBlocks = 1;
#else
constexpr int kFewerBlocks = 0;
#endif

constexpr unsigned kNotANumber = 0x7fc00000u;

// The sizes of a call as kernels count. The bytes of one pixel of all heads are an int too.
struct DeformSizes {
  int batch, pixels, heads, channels, queries, levels, points;

  __device__ int samples() const { return levels * points; }
};

struct Map {
  int height, width, start;
};

// Starts apart from what they are summed from, which the compiler reads in vectors.
struct Maps {
  int height[kMaxLevels], width[kMaxLevels], start[kMaxLevels];

  __device__ Map operator[](int level) const { return {height[level], width[level], start[level]}; }
};

// For every thread of the block. False where the maps are not those of value.
__device__ inline bool read_maps(const DeformMaps& given, int levels, int pixels, Maps& maps) {
  bool right = true;
  for (int l = threadIdx.x; l < levels; l += blockDim.x) {
    const int64_t height = given.shapes == nullptr ? given.heights[l] : given.shapes[2 * l];
    const int64_t width = given.shapes == nullptr ? given.widths[l] : given.shapes[2 * l + 1];
    right = right && height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide;
    maps.height[l] = static_cast<int>(height);
    maps.width[l] = static_cast<int>(width);
  }
  right = __syncthreads_and(right);
  if (!right) return false;
  for (int l = threadIdx.x; l < levels; l += blockDim.x) {
    int64_t start = 0;
    for (int before = 0; before < l; ++before)
      start += int64_t{maps.height[before]} * maps.width[before];
    if (given.starts != nullptr) right = right && given.starts[l] == start;
    if (given.has_starts) right = right && given.given_starts[l] == start;
    if (l == levels - 1) right = right && start + int64_t{maps.height[l]} * maps.width[l] == pixels;
    maps.start[l] = static_cast<int>(start);
  }
  return __syncthreads_and(right);
}

// Tensors beside value have its type or floats, which only the host knows.
template <typename T>
__device__ inline float load_float(const void* from, bool floats, int64_t i) {
  return floats ? static_cast<const float*>(from)[i] : to_float(static_cast<const T*>(from)[i]);
}

template <typename T>
__device__ inline void store_float(void* to, bool floats, int64_t i, float v) {
  if (floats) {
    static_cast<float*>(to)[i] = v;
  } else {
    static_cast<T*>(to)[i] = from_float<T>(v);
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

// A sample's location and weight. Whether there is one is told by the location: NaN is nowhere.
struct Sample {
  float x, y, weight;

  __device__ static Sample none() {
    const float nan = __uint_as_float(kNotANumber);
    return {nan, nan, 0};
  }
};

template <typename T>
struct SampleReader {
  const void* locations;
  const void* weights;
  bool given_floats[2];  // instead of T: locations, weights
  bool pairs;            // locations are aligned to pairs

  // Where T is float the compiler has no choice to make.
  __device__ bool floats(int which) const { return sizeof(T) == 4 || given_floats[which]; }

  __device__ float2 location(int64_t i) const {
    if (!pairs) {
      return {load_float<T>(locations, floats(0), 2 * i),
              load_float<T>(locations, floats(0), 2 * i + 1)};
    }
    return floats(0) ? load_pair(static_cast<const float*>(locations), i)
                     : load_pair(static_cast<const T*>(locations), i);
  }
  __device__ Sample operator()(int64_t i) const {
    const float2 at = location(i);
    return {at.x, at.y, load_float<T>(weights, floats(1), i)};
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

// What a warp's lanes tell each other of one sample. A corner that does not exist is another's
// pixel, and the two share its factor in equal parts: so every corner is read, and no pixel that
// the sample does not have. A sample that has none is marked in the first, and its pixels may be
// read.
struct alignas(16) Record {
  int pixel[4];
  float factor[4];  // coefficient * weight

  __device__ bool exists() const { return pixel[0] >= 0; }
  __device__ int at(int c) const { return c == 0 ? pixel[0] & 0x7fffffff : pixel[c]; }
};

constexpr int kNowhere = static_cast<int>(0x80000000u);  // pixel 0, marked

// Of two corners: where only one exists, both are that one's halves.
__device__ inline void share(int& pixel, float& factor, int& other_pixel, float& other_factor) {
  const bool here = pixel >= 0, there = other_pixel >= 0;
  if (here == there) return;
  if (here) other_pixel = pixel;
  if (there) pixel = other_pixel;
  factor = other_factor = 0.5f * (here ? factor : other_factor);
}

__device__ inline Record record_of(const Corners& corners, float weight) {
  const float gx = 1 - corners.fx, gy = 1 - corners.fy;
  Record r = {{corners.pixel[0], corners.pixel[1], corners.pixel[2], corners.pixel[3]},
              {gx * gy * weight, corners.fx * gy * weight, gx * corners.fy * weight,
               corners.fx * corners.fy * weight}};
  share(r.pixel[0], r.factor[0], r.pixel[1], r.factor[1]);
  share(r.pixel[2], r.factor[2], r.pixel[3], r.factor[3]);
  share(r.pixel[0], r.factor[0], r.pixel[2], r.factor[2]);
  share(r.pixel[1], r.factor[1], r.pixel[3], r.factor[3]);
  if (r.pixel[0] < 0) return {{kNowhere, 0, 0, 0}, {0, 0, 0, 0}};
  return r;
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

// The rows of a warp: a run of queries of one head of one image.
struct WarpRows {
  int image, head;
  int first, end;

  // -1 for a row that does not exist.
  __device__ int query(int row) const { return row < end - first ? first + row : -1; }
};

// By the number of the block: one row a warp, or kRows.
template <int kRows>
__device__ inline WarpRows rows_of_warp(const DeformSizes& in) {
  const int warp = threadIdx.x / kWarp;
  if constexpr (kRows == 1) {  // heads next to each other are next to each other in memory
    const int64_t row = int64_t{blockIdx.x} * kDeformWarps + warp;
    if (row > INT32_MAX) {
      const int64_t query = row / in.heads;
      const auto image = static_cast<int>(query / in.queries);
      const auto first = static_cast<int>(query % in.queries);
      return {image, static_cast<int>(row % in.heads), first, image < in.batch ? first + 1 : first};
    }
    // The division of 64 bits takes a tenth of a small call's time.
    const int near = static_cast<int>(row), query = near / in.heads;
    const int image = query / in.queries, first = query % in.queries;
    return {image, near % in.heads, first, image < in.batch ? first + 1 : first};
  } else {
    const auto per_head = static_cast<unsigned>(ceil_div(in.queries, kDeformWarps * kRows));
    const auto head = static_cast<int>(blockIdx.x / per_head);
    const auto run = static_cast<int>(blockIdx.x % per_head);
    return {head / in.heads, head % in.heads, (run * kDeformWarps + warp) * kRows, in.queries};
  }
}

// A row's place among all: [batch, queries, heads].
__device__ inline int64_t row_of(const DeformSizes& in, int image, int head, int query) {
  return (int64_t{image} * in.queries + query) * in.heads + head;
}

}  // namespace hk
