// Multi-scale deformable attention over hk::Lanes. Each ISA file includes one lanes_*.h and then
// this header; the unnamed namespace keeps a tier's code out of the other tiers at link time.
//
// A sample is one level and point of one head of one query; a row is all samples of one head of one
// query. Rows are taken in blocks: the samples of a block become corners and coefficients, 16 at a
// time; then each row gathers (and, backward, scatters) whole pixels of channels.
#pragma once

#include "hk/loops.h"
#include "ms_deform_attn.h"

namespace hk {
namespace {

static_assert(kDeformLanes == kLanes, "bindings give room by the one, kernels write by the other");

// Samples of a block, unless it has so many rows before: enough that no lane waits for what another
// has just written, few enough that corners and coefficients stay in L1. 64: 23 % slower.
constexpr int64_t kBlockSamples = 256;
constexpr int64_t kBlockRows = 64;

// Pixels from the one that is packed to the one that is prefetched: each is in a line of its own.
constexpr int64_t kPackAhead = 16;

inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t whole_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
inline int64_t samples_of(const DeformInputs& in) { return in.levels * in.points; }
inline int64_t padded(const DeformInputs& in) { return whole_lanes(in.channels); }

// Pixels of one head in float, channels padded to whole vectors; behind them one pixel for the
// corners that do not exist: zeros to read, a dump to add to.
inline int64_t packed_floats(const DeformInputs& in) { return (in.pixels + 1) * padded(in); }

// Hands out scratch from a line on; without memory it only counts.
class Carver {
 public:
  explicit Carver(float* from) : from_(from) {}
  float* floats(int64_t count) {
    float* at = from_ == nullptr ? nullptr : from_ + used_;
    used_ += whole_lanes(count);
    return at;
  }
  int32_t* ints(int64_t count) { return reinterpret_cast<int32_t*>(floats(count)); }
  int64_t used() const { return used_; }

 private:
  float* from_;
  int64_t used_ = 0;
};

// What each sample of a block belongs to: the same for every row, so written once.
struct Levels {
  float *width, *height;
  int32_t *step, *start;  // pixels to the next line of the map, and before the map
};

// The four corners of the samples of a block, [samples, 4]: upper left, upper right, lower left,
// lower right.
struct Corners {
  int32_t* pixel;      // times what find_corners was told; `pixels` where the corner does not exist
  float* coefficient;  // times the weight; 0 where the corner does not exist
  float *fx, *fy;      // [samples]; 0 where there is no corner
};

struct Block {
  int64_t rows;  // at most
  Levels levels;
  float *locations, *weights;
  Corners corners;
  float* out;  // [rows, padded channels]
  // backward
  float* grad;  // [rows, padded channels]
  float* dots;  // [samples, 4]
  float *grad_locations, *grad_weights;
};

inline int64_t block_rows(int64_t samples) {
  return larger(1, smaller(kBlockRows, kBlockSamples / samples));
}

inline Block carve_block(Carver& carver, const DeformInputs& in, int64_t rows, bool backward) {
  Block block = {};
  const int64_t samples = whole_lanes(rows * samples_of(in)) + kLanes;
  block.rows = rows;
  block.levels = {carver.floats(samples), carver.floats(samples), carver.ints(samples),
                  carver.ints(samples)};
  block.locations = carver.floats(2 * samples);
  block.weights = carver.floats(samples);
  block.corners.pixel = carver.ints(4 * samples);
  block.corners.coefficient = carver.floats(4 * samples);
  if (!backward) {
    block.out = carver.floats(rows * padded(in));
    return block;
  }
  block.corners.fx = carver.floats(samples);
  block.corners.fy = carver.floats(samples);
  block.grad = carver.floats(rows * padded(in));
  block.dots = carver.floats(4 * samples);
  block.grad_locations = carver.floats(2 * samples);
  block.grad_weights = carver.floats(samples);
  return block;
}

// Repeats the levels of a row for every row of a block, and beyond for whole lanes.
inline void fill_levels(const Levels& levels, const DeformInputs& in, int64_t count) {
  int64_t i = 0;
  while (i < count) {
    int64_t start = 0;
    for (int64_t level = 0; level < in.levels && i < count; ++level) {
      const int64_t height = in.heights[level], width = in.widths[level];
      for (int64_t point = 0; point < in.points && i < count; ++point, ++i) {
        levels.width[i] = static_cast<float>(width);
        levels.height[i] = static_cast<float>(height);
        levels.step[i] = static_cast<int32_t>(width);
        levels.start[i] = static_cast<int32_t>(start);
      }
      start += height * width;
    }
  }
}

// Rows of a tensor of `elements`, `step` apart.
struct RowsOf {
  DType type;
  const void* data;
  int64_t elements, first, step;
};

// Widens rows of `cols` and puts them one behind the other; up to a vector behind the last is
// overwritten. A load may reach into the next rows: there are elements there, or it is cut.
template <typename T>
void stage_rows(const T* from, const RowsOf& rows, int64_t count, int64_t cols, float* to) {
  for (int64_t r = 0; r < count; ++r, to += cols) {
    const int64_t first = rows.first + r * rows.step;
    for (int64_t c = 0; c < cols; c += kLanes) {
      const int64_t left = rows.elements - (first + c);
      const T* at = from + first + c;
      store(to + c, left >= kLanes ? load(at) : load(at, left));
    }
  }
}

inline void stage(const RowsOf& rows, int64_t count, int64_t cols, float* to) {
  with_type(rows.type, [&]<typename T>(T*) {
    stage_rows(static_cast<const T*>(rows.data), rows, count, cols, to);
  });
}

inline int64_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

// Rows far apart are not foreseen by the processor: prefetching those of the next block takes 8 %
// off the encoder's forward. Prefetching pixels gains nothing.
struct Ahead {
  const char* first;
  int64_t rows, step, bytes;

  // Inlined at once: GCC 12 takes a function that only prefetches for one without effect.
  [[gnu::always_inline]] void touch(int64_t row) const {
    if (row >= rows) return;
    const char* at = first + row * step;
    for (int64_t b = 0; b < bytes; b += kLineBytes) prefetch(at + b);
    prefetch(at + bytes - 1);
  }
};

inline Ahead ahead_of(const RowsOf& rows, int64_t begin, int64_t end, int64_t cols) {
  const int64_t size = size_of(rows.type);
  const char* data = static_cast<const char*>(rows.data);
  return {data + (rows.first + begin * rows.step) * size, end - begin, rows.step * size,
          cols * size};
}

// [4][16] elements to [16][4] and back.
struct Quad {
  Lanes part[4];
};

inline Quad zip(const Quad& q) {
  const Pair even = zip(q.part[0], q.part[2]), odd = zip(q.part[1], q.part[3]);
  const Pair front = zip(even.first, odd.first), back = zip(even.second, odd.second);
  return {{front.first, front.second, back.first, back.second}};
}

inline Quad unzip(const Quad& q) {
  const Pair front = unzip(q.part[0], q.part[1]), back = unzip(q.part[2], q.part[3]);
  const Pair even = unzip(front.first, back.first), odd = unzip(front.second, back.second);
  return {{even.first, odd.first, even.second, odd.second}};
}

// Corners and coefficients of `count` samples, 16 at a time. Pixels are told times `scale`.
template <bool Backward>
void find_corners(const Block& block, int32_t none, int32_t scale, int64_t count) {
  const Lanes zero = splat(0), one = splat(1), minus_one = splat(-1), minus_half = splat(-0.5f);
  const Ints no_pixel = splat_int(none), one_pixel = splat_int(1), by = splat_int(scale);
  const Corners& to = block.corners;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Lanes width = load(block.levels.width + i), height = load(block.levels.height + i);
    const Pair location =
        unzip(load(block.locations + 2 * i), load(block.locations + 2 * i + kLanes));
    // Of location * extent - 1/2, without its rounding, which is the larger the wider the map: the
    // whole pixel before it, and what is left. Errors of the encoder are 20 times smaller for it.
    const Lanes left_x = floor_fma(location.first, width, minus_half);
    const Lanes upper_y = floor_fma(location.second, height, minus_half);
    const Lanes fx = fma(location.first, width, minus_half - left_x);
    const Lanes fy = fma(location.second, height, minus_half - upper_y);
    const Lanes gx = one - fx, gy = one - fy;
    // False for NaN, so that nothing below is out of the range of an int.
    const Mask inside = (minus_one < left_x + fx) & (left_x < width) & (minus_one < upper_y + fy) &
                        (upper_y < height);
    const Ints column = floor_ints(select(inside, left_x, zero));
    const Ints line = floor_ints(select(inside, upper_y, zero));
    const Mask left = inside & (minus_one < left_x), right = inside & (left_x + one < width);
    const Mask upper = minus_one < upper_y, lower = upper_y + one < height;
    const Ints step = load_ints(block.levels.step + i);
    const Ints pixel = load_ints(block.levels.start + i) + line * step + column;
    const Lanes weight = load(block.weights + i);
    Quad pixels, coefficients;
    const auto put = [&](int corner, const Mask& there, const Ints& at, const Lanes& coefficient) {
      pixels.part[corner] = as_lanes(select(there, at, no_pixel) * by);
      coefficients.part[corner] = select(there, coefficient * weight, zero);
    };
    put(0, left & upper, pixel, gx * gy);
    put(1, right & upper, pixel + one_pixel, fx * gy);
    put(2, left & lower, pixel + step, gx * fy);
    put(3, right & lower, pixel + step + one_pixel, fx * fy);
    pixels = zip(pixels);
    coefficients = zip(coefficients);
    for (int c = 0; c < 4; ++c) {
      store_ints(to.pixel + 4 * i + c * kLanes, as_ints(pixels.part[c]));
      store(to.coefficient + 4 * i + c * kLanes, coefficients.part[c]);
    }
    if constexpr (Backward) {
      store(to.fx + i, select(inside, fx, zero));
      store(to.fy + i, select(inside, fy, zero));
    }
  }
}

// One head's pixels in floats, found by their first element.
struct Packed {
  const float* first;

  const float* at(int32_t element) const { return first + element; }
};

// One head's pixels where they are, found by their number.
template <typename T>
struct InPlace {
  const T* first;
  int64_t step;     // elements from pixel to pixel
  const T* absent;  // what stands for pixel `none`
  int32_t none;

  const T* at(int32_t pixel) const {
    return pixel == none ? absent : first + int64_t{pixel} * step;
  }
};

// out = sum over the samples of one row, for `Groups` vectors of channels. Left and right corners
// are summed apart: that halves the chain of additions, and AVX2 has registers for no more.
template <int Groups, typename Pixels>
inline void gather_row(const Pixels& pixels, const Corners& corners, int64_t begin, int64_t end,
                       int64_t channel, float* out) {
  Lanes left[Groups], right[Groups];
  for (int g = 0; g < Groups; ++g) left[g] = right[g] = splat(0);
  const auto add = [&](int corner, int64_t i, Lanes* sum) {
    const auto* from = pixels.at(corners.pixel[4 * i + corner]) + channel;
    const Lanes coefficient = splat(corners.coefficient[4 * i + corner]);
    for (int g = 0; g < Groups; ++g) sum[g] = sum[g] + coefficient * load(from + g * kLanes);
  };
  for (int64_t i = begin; i < end; ++i) {
    add(0, i, left);
    add(1, i, right);
    add(2, i, left);
    add(3, i, right);
  }
  for (int g = 0; g < Groups; ++g) store(out + channel + g * kLanes, left[g] + right[g]);
}

// Calls body<Groups>(channel) so that all vectors of channels are covered, widest first.
template <typename Body>
inline void for_groups(int64_t groups, Body body) {
  int64_t g = 0;
  for (; g + 4 <= groups; g += 4) body.template operator()<4>(g * kLanes);
  if (groups - g >= 2) {
    body.template operator()<2>(g * kLanes);
    g += 2;
  }
  if (g < groups) body.template operator()<1>(g * kLanes);
}

template <typename T>
void narrow_rows(const float* from, int64_t from_step, int64_t count, int64_t cols, T* to,
                 int64_t to_step, bool streamed) {
  for (int64_t r = 0; r < count; ++r, from += from_step, to += to_step) {
    if (!streamed || !can_stream(to)) {
      convert(from, to, 0, cols);
      continue;
    }
    for_lanes(
        0, cols, [&](int64_t c) { stream(to + c, load(from + c)); },
        [&](int64_t c, int64_t live) { store(to + c, load(from + c, live), live); });
  }
}

inline void narrow(const float* from, int64_t from_step, int64_t count, int64_t cols, DType type,
                   void* to, int64_t first, int64_t to_step, bool streamed = false) {
  with_type(type, [&]<typename T>(T*) {
    narrow_rows(from, from_step, count, cols, static_cast<T*>(to) + first, to_step, streamed);
  });
}

// One head's values of one image in float, and the absent pixel.
template <typename T>
void pack_head(const T* from, const DeformInputs& in, float* to) {
  const int64_t step = in.heads * in.channels, width = padded(in);
  const Ahead ahead = {reinterpret_cast<const char*>(from), in.pixels,
                       step * static_cast<int64_t>(sizeof(T)),
                       in.channels * static_cast<int64_t>(sizeof(T))};
  for (int64_t s = 0; s < in.pixels; ++s, from += step, to += width) {
    ahead.touch(s + kPackAhead);
    widen_padded(from, to, in.channels);
  }
  fill_zero(to, width);
}

inline void pack(const DeformInputs& in, int64_t image, int64_t head, float* to) {
  const int64_t first = (image * in.pixels * in.heads + head) * in.channels;
  with_type(in.value_type,
            [&]<typename T>(T*) { pack_head(static_cast<const T*>(in.value) + first, in, to); });
}

// The rows of one head of one image, from a query on.
inline RowsOf head_rows(DType type, const void* data, const DeformInputs& in, int64_t image,
                        int64_t head, int64_t query, int64_t cols) {
  const int64_t row = (image * in.queries + query) * in.heads + head;
  return {type, data, in.batch * in.queries * in.heads * cols, row * cols, in.heads * cols};
}

// Queries [begin, end) of one head, whose pixels are packed.
void forward_head(const DeformForward& args, const Block& block, const float* packed, int64_t image,
                  int64_t head, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  const int64_t samples = samples_of(in), width = padded(in);
  const auto none = static_cast<int32_t>(in.pixels);
  const Packed pixels = {packed};
  for (int64_t query = begin; query < end; query += block.rows) {
    const int64_t count = smaller(block.rows, end - query);
    const RowsOf locations =
        head_rows(in.location_type, in.locations, in, image, head, query, 2 * samples);
    const RowsOf weights = head_rows(in.weight_type, in.weights, in, image, head, query, samples);
    stage(locations, count, 2 * samples, block.locations);
    stage(weights, count, samples, block.weights);
    find_corners<false>(block, none, static_cast<int32_t>(width), count * samples);
    const int64_t last = smaller(2 * block.rows, end - query);
    const Ahead next_locations = ahead_of(locations, count, last, 2 * samples);
    const Ahead next_weights = ahead_of(weights, count, last, samples);
    for_groups(width / kLanes, [&]<int Groups>(int64_t channel) {
      for (int64_t r = 0; r < count; ++r) {
        if (channel == 0) {
          next_locations.touch(r);
          next_weights.touch(r);
        }
        gather_row<Groups>(pixels, block.corners, r * samples, (r + 1) * samples, channel,
                           block.out + r * width);
      }
    });
    const RowsOf out = head_rows(in.value_type, args.out, in, image, head, query, in.channels);
    narrow(block.out, width, count, in.channels, out.type, args.out, out.first, out.step,
           args.stream);
  }
}

// Queries are counted head by head: a thread that starts within a head packs it for itself.
void forward_packed(const DeformForward& args, float* scratch, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  Carver carver(scratch);
  float* packed = carver.floats(packed_floats(in));
  const Block block = carve_block(carver, in, block_rows(samples_of(in)), false);
  fill_levels(block.levels, in, whole_lanes(block.rows * samples_of(in)));
  while (begin < end) {
    const int64_t head = begin / in.queries, first = begin % in.queries;
    const int64_t last = smaller(in.queries, first + (end - begin));
    pack(in, head / in.heads, head % in.heads, packed);
    forward_head(args, block, packed, head / in.heads, head % in.heads, first, last);
    begin += last - first;
  }
  if (args.stream) finish_streams();
}

// All heads of a query at once, its samples being one behind the other.
template <typename T>
void forward_in_place(const DeformForward& args, const Block& block, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  const int64_t samples = samples_of(in), row_samples = in.heads * samples;
  const int64_t row = in.heads * in.channels;
  const auto none = static_cast<int32_t>(in.pixels);
  const int64_t together = block.rows / in.heads;
  for (int64_t query = begin; query < end;) {
    const int64_t image = query / in.queries;
    const int64_t count = smaller(together, smaller(end, (image + 1) * in.queries) - query);
    const int64_t all = in.batch * in.queries * row_samples, first = query * row_samples;
    stage({in.location_type, in.locations, 2 * all, 2 * first, 0}, 1, 2 * count * row_samples,
          block.locations);
    stage({in.weight_type, in.weights, all, first, 0}, 1, count * row_samples, block.weights);
    find_corners<false>(block, none, 1, count * row_samples);
    const T* value = static_cast<const T*>(in.value) + image * in.pixels * row;
    for_groups(in.channels / kLanes, [&]<int Groups>(int64_t channel) {
      int64_t sample = 0;
      float* out = block.out;
      for (int64_t q = 0; q < count; ++q) {
        InPlace<T> pixels = {value, row, static_cast<const T*>(in.zero_pixel), none};
        for (int64_t head = 0; head < in.heads; ++head) {
          gather_row<Groups>(pixels, block.corners, sample, sample + samples, channel, out);
          pixels.first += in.channels;
          sample += samples;
          out += in.channels;
        }
      }
    });
    convert(block.out, static_cast<T*>(args.out) + query * row, 0, count * row);
    query += count;
  }
}

inline int64_t in_place_rows(const DeformInputs& in) {
  return in.heads * block_rows(in.heads * samples_of(in));
}

void forward(const DeformForward& args, float* scratch, int64_t begin, int64_t end) {
  if (args.packed) return forward_packed(args, scratch, begin, end);
  Carver carver(scratch);
  const Block block = carve_block(carver, args.in, in_place_rows(args.in), false);
  fill_levels(block.levels, args.in, whole_lanes(block.rows * samples_of(args.in)));
  with_type(args.in.value_type,
            [&]<typename T>(T*) { forward_in_place<T>(args, block, begin, end); });
}

int64_t forward_scratch(const DeformForward& args) {
  Carver carver(nullptr);
  if (args.packed) carver.floats(packed_floats(args.in));
  carve_block(carver, args.in,
              args.packed ? block_rows(samples_of(args.in)) : in_place_rows(args.in), false);
  return carver.used();
}

// dots[i, corner] = pixel . grad, for the samples [begin, end) of one row, four at a time; up to
// three samples behind the last are overwritten.
template <int Groups>
inline void dot_row(const float* packed, int64_t width, const Corners& corners, const float* grad,
                    int64_t begin, int64_t end, float* dots) {
  const auto dot = [&](int64_t sample, int corner) {
    const float* from = packed + corners.pixel[4 * sample + corner];
    Lanes product = load(from) * load(grad);
    const int64_t groups = Groups == 0 ? width / kLanes : Groups;
    for (int64_t g = 1; g < groups; ++g) {
      product = product + load(from + g * kLanes) * load(grad + g * kLanes);
    }
    return product;
  };
  int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    store(dots + 4 * i, sums([&](int k) { return dot(i + k / 4, k % 4); }));
  }
  if (i < end) {
    const auto cut = [&](int k) { return i + k / 4 < end ? dot(i + k / 4, k % 4) : splat(0); };
    store(dots + 4 * i, sums(cut));
  }
}

// Gradients of weights and locations of `count` samples, 16 at a time.
// none: what `pixel` says of a corner that does not exist.
inline void differentiate(const Block& block, int32_t none, int64_t count) {
  const Lanes zero = splat(0), one = splat(1);
  const Ints no_pixel = splat_int(none);
  for (int64_t i = 0; i < count; i += kLanes) {
    Quad dots, pixels;
    for (int c = 0; c < 4; ++c) {
      dots.part[c] = load(block.dots + 4 * i + c * kLanes);
      pixels.part[c] = as_lanes(load_ints(block.corners.pixel + 4 * i + c * kLanes));
    }
    dots = unzip(dots);
    pixels = unzip(pixels);
    Mask absent[4];
    for (int c = 0; c < 4; ++c) {
      absent[c] = as_ints(pixels.part[c]) == no_pixel;
      // Zeros of the absent pixel times an infinite gradient would be NaN.
      dots.part[c] = select(absent[c], zero, dots.part[c]);
    }
    const auto& [d0, d1, d2, d3] = dots.part;
    const Mask outside = absent[0] & absent[1] & absent[2] & absent[3];

    const Lanes fx = load(block.corners.fx + i), fy = load(block.corners.fy + i);
    const Lanes gx = one - fx, gy = one - fy;
    const Lanes upper = gx * gy * d0 + fx * gy * d1, lower = gx * fy * d2 + fx * fy * d3;
    store(block.grad_weights + i, upper + lower);

    const Lanes weight = load(block.weights + i);
    const Lanes by_x = gy * (d1 - d0) + fy * (d3 - d2);
    const Lanes by_y = gx * (d2 - d0) + fx * (d3 - d1);
    const Lanes grad_x = weight * load(block.levels.width + i) * by_x;
    const Lanes grad_y = weight * load(block.levels.height + i) * by_y;
    const Pair pairs = zip(select(outside, zero, grad_x), select(outside, zero, grad_y));
    store(block.grad_locations + 2 * i, pairs.first);
    store(block.grad_locations + 2 * i + kLanes, pairs.second);
  }
}

// grad_value[pixel] += coefficient * grad, for the samples of one row in order.
template <int Groups>
inline void scatter_row(float* grad_value, const Corners& corners, const float* grad, int64_t begin,
                        int64_t end, int64_t channel) {
  Lanes part[Groups];
  for (int g = 0; g < Groups; ++g) part[g] = load(grad + channel + g * kLanes);
  for (int64_t i = begin; i < end; ++i) {
    for (int corner = 0; corner < 4; ++corner) {
      float* to = grad_value + corners.pixel[4 * i + corner] + channel;
      const Lanes coefficient = splat(corners.coefficient[4 * i + corner]);
      for (int g = 0; g < Groups; ++g) {
        store(to + g * kLanes, load(to + g * kLanes) + coefficient * part[g]);
      }
    }
  }
}

inline void dot_rows(const Block& block, const float* packed, int64_t width, int64_t count,
                     int64_t samples) {
  const auto run = [&]<int Groups>() {
    for (int64_t r = 0; r < count; ++r) {
      dot_row<Groups>(packed, width, block.corners, block.grad + r * width, r * samples,
                      (r + 1) * samples, block.dots);
    }
  };
  switch (width / kLanes) {
    case 1:
      return run.template operator()<1>();
    case 2:
      return run.template operator()<2>();
    case 4:
      return run.template operator()<4>();
    default:
      return run.template operator()<0>();
  }
}

// As stage(), with each row padded to whole vectors by zeros.
inline void stage_padded(const RowsOf& rows, int64_t count, int64_t cols, float* to) {
  with_type(rows.type, [&]<typename T>(T*) {
    for (int64_t r = 0; r < count; ++r, to += whole_lanes(cols)) {
      const T* from = static_cast<const T*>(rows.data) + rows.first + r * rows.step;
      widen_padded(from, to, cols);
    }
  });
}

// Queries [begin, end) of one head. packed: its pixels; grad_value: where theirs are summed.
void backward_head(const DeformBackward& args, const Block& block, const float* packed,
                   float* grad_value, int64_t image, int64_t head, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  const int64_t samples = samples_of(in), width = padded(in);
  const auto none = static_cast<int32_t>(in.pixels);
  for (int64_t query = begin; query < end; query += block.rows) {
    const int64_t count = smaller(block.rows, end - query);
    const RowsOf locations =
        head_rows(in.location_type, in.locations, in, image, head, query, 2 * samples);
    const RowsOf weights = head_rows(in.weight_type, in.weights, in, image, head, query, samples);
    const RowsOf grad = head_rows(in.value_type, args.grad, in, image, head, query, in.channels);
    stage(locations, count, 2 * samples, block.locations);
    stage(weights, count, samples, block.weights);
    stage_padded(grad, count, in.channels, block.grad);
    find_corners<true>(block, none, static_cast<int32_t>(width), count * samples);

    const int64_t last = smaller(2 * block.rows, end - query);
    for (int64_t r = 0; r < last - count; ++r) {
      ahead_of(locations, count, last, 2 * samples).touch(r);
      ahead_of(weights, count, last, samples).touch(r);
      ahead_of(grad, count, last, in.channels).touch(r);
    }
    if (args.grad_locations != nullptr || args.grad_weights != nullptr) {
      dot_rows(block, packed, width, count, samples);
      differentiate(block, none * static_cast<int32_t>(width), count * samples);
    }
    if (args.grad_locations != nullptr) {
      narrow(block.grad_locations, 2 * samples, count, 2 * samples, locations.type,
             args.grad_locations, locations.first, locations.step);
    }
    if (args.grad_weights != nullptr) {
      narrow(block.grad_weights, samples, count, samples, weights.type, args.grad_weights,
             weights.first, weights.step);
    }
    if (grad_value == nullptr) continue;
    for_groups(width / kLanes, [&]<int Groups>(int64_t channel) {
      for (int64_t r = 0; r < count; ++r) {
        scatter_row<Groups>(grad_value, block.corners, block.grad + r * width, r * samples,
                            (r + 1) * samples, channel);
      }
    });
  }
}

// head: counted over all images.
template <typename T>
inline T* pixel_of(const DeformInputs& in, void* tensor, int64_t head, int64_t pixel) {
  const int64_t image = head / in.heads;
  return static_cast<T*>(tensor) +
         ((image * in.pixels + pixel) * in.heads + head % in.heads) * in.channels;
}

void write_grad_value(const DeformBackward& args, const float* sums, int64_t head) {
  const DeformInputs& in = args.in;
  with_type(in.value_type, [&]<typename T>(T*) {
    narrow_rows(sums, padded(in), in.pixels, in.channels, pixel_of<T>(in, args.grad_value, head, 0),
                in.heads * in.channels, args.stream);
  });
}

void backward(const DeformBackward& args, float* scratch, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  const bool want_dots = args.grad_locations != nullptr || args.grad_weights != nullptr;
  Carver carver(scratch);
  float* packed = want_dots ? carver.floats(packed_floats(in)) : nullptr;
  float* own = args.partial == nullptr && args.grad_value != nullptr
                   ? carver.floats(packed_floats(in))
                   : nullptr;
  const Block block = carve_block(carver, in, block_rows(samples_of(in)), true);
  fill_levels(block.levels, in, whole_lanes(block.rows * samples_of(in)));
  int64_t packed_head = -1;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t head = task / args.chunks, first = task % args.chunks * args.queries_per_chunk;
    const int64_t last = smaller(in.queries, first + args.queries_per_chunk);
    if (want_dots && head != packed_head) pack(in, head / in.heads, head % in.heads, packed);
    packed_head = head;
    float* sums = args.partial == nullptr ? own : args.partial + task * packed_floats(in);
    if (sums != nullptr) fill_zero(sums, packed_floats(in));
    backward_head(args, block, packed, sums, head / in.heads, head % in.heads, first, last);
    if (own != nullptr) write_grad_value(args, own, head);
  }
  if (args.stream) finish_streams();
}

int64_t backward_scratch(const DeformBackward& args) {
  Carver carver(nullptr);
  if (args.grad_locations != nullptr || args.grad_weights != nullptr) {
    carver.floats(packed_floats(args.in));
  }
  if (args.partial == nullptr && args.grad_value != nullptr) carver.floats(packed_floats(args.in));
  carve_block(carver, args.in, block_rows(samples_of(args.in)), true);
  return carver.used();
}

void sum_chunks(const DeformBackward& args, int64_t begin, int64_t end) {
  const DeformInputs& in = args.in;
  const int64_t width = padded(in);
  with_type(in.value_type, [&]<typename T>(T*) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / in.pixels, pixel = i % in.pixels;
      float* sum = args.partial + head * args.chunks * packed_floats(in) + pixel * width;
      for (int64_t chunk = 1; chunk < args.chunks; ++chunk) {
        add_to(sum, sum + chunk * packed_floats(in), 0, width);
      }
      convert(sum, pixel_of<T>(in, args.grad_value, head, pixel), 0, in.channels);
    }
  });
}

constexpr DeformKernels kKernels = {forward_scratch, backward_scratch, forward, backward,
                                    sum_chunks};

}  // namespace
}  // namespace hk
