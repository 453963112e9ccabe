// The kernels of the backward pass.
//
// Warps and records are as in the forward pass. For each corner of a sample a group of lanes has
// the channels of the pixel and of the row's gradient: it adds the second, times the factor, to the
// gradient of value, and tells their product to the lane that made the record, which then has all
// it takes for the gradients of its location and weight.
#pragma once

#include "hk/atomic.cuh"
#include "ms_deform_attn/exact.cuh"
#include "ms_deform_attn/samples.cuh"

namespace hk {

template <typename T>
struct BackwardArgs {
  DeformSizes in;
  DeformMaps maps;
  SampleReader<T> read;
  const T* value;
  const T* grad;
  float* grad_value;  // sums; null where not wanted, or exact
  ExactSums exact;    // sums null: not exact
  void* grad_locations;
  void* grad_weights;
};

template <typename T>
__device__ inline void fill_nan(void* to, bool floats, int64_t count) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x)
    store_float<T>(to, floats, i, __uint_as_float(kNotANumber));
}

template <typename T>
__device__ inline void fill_nan(const BackwardArgs<T>& args) {
  const DeformSizes& in = args.in;
  const int64_t elements = int64_t{in.batch} * in.pixels * in.heads * in.channels;
  const int64_t samples = int64_t{in.batch} * in.queries * in.heads * in.samples();
  if (args.grad_value != nullptr) fill_nan(args.grad_value, elements);
  if (args.exact.sums != nullptr) {
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
         i += int64_t{gridDim.x} * blockDim.x)
      mark(args.exact.marks, i, kMarkNan);
  }
  if (args.grad_locations != nullptr)
    fill_nan<T>(args.grad_locations, args.read.floats(0), 2 * samples);
  if (args.grad_weights != nullptr) fill_nan<T>(args.grad_weights, args.read.floats(1), samples);
}

// Sums each of the values over the lanes of a group, and leaves every lane kCount / kGroup of them,
// or all lanes that differ in their lowest bits the same one. Tells which is first.
template <int kGroup, int kCount>
__device__ inline int sum_apart(float (&v)[kCount], int part) {
  int first = 0, count = kCount;
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2) {
    if (count == 1) {
      v[0] += shuffle_xor(v[0], step, kWarp);
      continue;
    }
    count /= 2;
    const bool upper = (part & step) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float mine = upper ? v[count + i] : v[i], theirs = upper ? v[i] : v[count + i];
      v[i] = mine + shuffle_xor(theirs, step, kWarp);
    }
    if (upper) first += count;
  }
  return first;
}

// A record, and what the lane that made it wants to know later: to keep it in registers would be
// too much.
struct alignas(16) FullRecord : Record {
  float fx, fy, weight;
  int corners;  // a bit for each that exists
};

__device__ inline FullRecord full_record_of(const Corners& corners, float weight) {
  int there = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) there |= (corners.pixel[c] >= 0 ? 1 : 0) << c;
  return {record_of(corners, weight), corners.fx, corners.fy, weight, there};
}

struct SampleGrad {
  float2 location;
  float weight;
};

// dot: of each corner's pixel and the row's gradient.
__device__ inline SampleGrad differentiate(const FullRecord& own, const Map& map,
                                           const float (&dot)[4]) {
  if (own.corners == 0) return {{0, 0}, 0};
  float d[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) d[c] = (own.corners >> c & 1) != 0 ? dot[c] : 0;
  const float gx = 1 - own.fx, gy = 1 - own.fy;
  const float by_x = gy * (d[1] - d[0]) + own.fy * (d[3] - d[2]);
  const float by_y = gx * (d[2] - d[0]) + own.fx * (d[3] - d[1]);
  const float upper = gx * gy * d[0] + own.fx * gy * d[1];
  const float lower = gx * own.fy * d[2] + own.fx * own.fy * d[3];
  const auto width = static_cast<float>(map.width), height = static_cast<float>(map.height);
  return {{own.weight * width * by_x, own.weight * height * by_y}, upper + lower};
}

// Into dot the products of kTogether samples' corners with the gradient's N channels. What comes of
// a corner that does not exist is not wanted.
template <int kTogether, typename T, int N>
__device__ inline void multiply(const FullRecord* records, int step, const T* value,
                                int pixel_bytes, const float (&grad)[N],
                                float (&dot)[4 * kTogether]) {
  Words<T, N> corner[kTogether][4];
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      corner[s][c].load_from(pixel_at(value, records[s * step].at(c), pixel_bytes));
  }
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        dot[4 * s + c] = fmaf(corner[s][c].at(i), grad[i], dot[4 * s + c]);
    }
  }
}

// Where the gradient of value is summed; either: in integers where they are
// given, as they are with vectors.
enum class Sums { none, floats, either };

// Adds to the gradients of kTogether samples' corners. first: of this lane's channels in pixel 0.
template <int kTogether, Sums kSums, typename T, int N>
__device__ inline void scatter(const BackwardArgs<T>& args, const FullRecord* records, int step,
                               int64_t first, double scale, const float (&grad)[N]) {
  const int pixel_elements = args.in.heads * args.in.channels;
  constexpr bool kUnroll =
      kSums == Sums::floats;  // what adds integers is long, and waits for memory
#pragma unroll(kUnroll ? kTogether : 1)
  for (int s = 0; s < kTogether; ++s) {
    if (!records[s * step].exists()) continue;
#pragma unroll(kUnroll ? 4 : 1)
    for (int c = 0; c < 4; ++c) {
      const float factor = records[s * step].factor[c];
      const int64_t at = first + int64_t{records[s * step].at(c)} * pixel_elements;
      Pack<float, N> term;
#pragma unroll
      for (int i = 0; i < N; ++i) term.lane[i] = factor * grad[i];
      if constexpr (kSums == Sums::either) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (N > 1 || args.exact.sums != nullptr) {
            add_exactly(args.exact, at + i, scale, term.lane[i]);
          } else {
            atomicAdd(args.grad_value + at + i, term.lane[i]);
          }
        }
      } else {
        add_to(args.grad_value + at, term);
      }
    }
  }
}

template <typename T, int N>
__device__ inline void load_grad(const T* from, bool there, float (&grad)[N]) {
  Words<T, N> words = {};
  if (there) words.load_from(from);
#pragma unroll
  for (int i = 0; i < N; ++i) grad[i] = words.at(i);
}

// As in the forward pass. With additions to memory, RF-DETR's queries take 115 us with one sample
// and 139 with two. Without, an encoder in float takes 284 with one and 330 with two, which leave a
// block less; in 16 bits both leave three.
HK_HOST_DEVICE constexpr int backward_together(int element_bytes, int rows, Sums sums) {
  if (rows == 1) return 2;
  return sums == Sums::floats || element_bytes == 4 ? 1 : 2;
}
constexpr int backward_blocks(int element_bytes, int lanes, int rows, Sums sums) {
  return rows != 1 || lanes == 1 || (sums == Sums::floats && element_bytes < 4) ? 3 : 2;
}

// The warp's share of the gradients of locations and weights: each lane has those of the sample
// whose record it made.
template <typename T>
__device__ inline void store_dots(const BackwardArgs<T>& args, int64_t at, const FullRecord& record,
                                  const Map& map, const float (&dot)[4]) {
  const SampleGrad found = differentiate(record, map, dot);
  if (args.grad_locations != nullptr) {
    if (args.read.floats(0)) {
      store_pair(static_cast<float*>(args.grad_locations), at, found.location);
    } else {
      store_pair(static_cast<T*>(args.grad_locations), at, found.location);
    }
  }
  if (args.grad_weights != nullptr)
    store_float<T>(args.grad_weights, args.read.floats(1), at, found.weight);
}

template <typename T, int N, int kGroup, int kRows, Sums kSums>
__global__ void __launch_bounds__(kDeformThreads,
                                  backward_blocks(sizeof(T), N, kRows, kSums) - kFewerBlocks)
    deform_backward(const BackwardArgs<T> args) {
  constexpr int kGroups = kWarp / kGroup;
  constexpr bool kShared = kRows == 1;                 // by all groups
  constexpr int kOwn = kShared ? 1 : kRows / kGroups;  // rows of a group
  constexpr int kSamples = kWarp / kRows;              // of a row, at once
  constexpr int kTogether = backward_together(sizeof(T), kRows, kSums);
  constexpr int kDots = 4 * kTogether;
  constexpr int kStep = kShared ? kGroups : 1;  // from one of a group's records to the next
  static_assert(kShared || kRows % kGroups == 0, "groups have whole rows");
  static_assert(kSamples % kTogether == 0);

  __shared__ Maps maps;
  __shared__ FullRecord all_records[kDeformWarps][kWarp];
  __shared__ Pack<float, 4> all_dots[kDeformWarps][kWarp];
  const DeformSizes& in = args.in;
  const int lane = threadIdx.x % kWarp, group = lane / kGroup, part = lane % kGroup;
  const WarpRows rows = rows_of_warp<kRows>(in);
  const int samples = in.samples();
  const int my_query = rows.query(lane / kSamples);
  const int64_t my_row = row_of(in, rows.image, rows.head, my_query) * samples;
  const auto sample_of = [&](int s) {
    return my_query >= 0 && s < samples ? args.read(my_row + s) : Sample::none();
  };
  Sample sample = sample_of(lane % kSamples);  // on its way while the maps are
  if (!read_maps(args.maps, in.levels, in.pixels, maps)) {
    fill_nan(args);
    return;
  }
  if (rows.image >= in.batch) return;  // the whole warp
  FullRecord* records = all_records[threadIdx.x / kWarp];
  Pack<float, 4>* dots = all_dots[threadIdx.x / kWarp];
  const int pixel_bytes = in.heads * in.channels * static_cast<int>(sizeof(T));
  const bool want_dots = args.grad_locations != nullptr || args.grad_weights != nullptr;
  const bool want_sums = args.grad_value != nullptr || args.exact.sums != nullptr;
  const int64_t head_first = (int64_t{rows.image} * in.pixels * in.heads + rows.head) * in.channels;
  double scale = 0;
  if (kSums == Sums::either && args.exact.sums != nullptr)
    scale = ldexp(1.0, exact_exponent(args.exact, rows.image * in.heads + rows.head));
  const auto grad_at = [&](int own, int channel, float (&to)[N]) {
    const int query = rows.query(own * kGroups + (kShared ? 0 : group));
    const bool there = query >= 0 && channel < in.channels;
    const int64_t row = row_of(in, rows.image, rows.head, query);
    load_grad(args.grad + row * in.channels + channel, there, to);
  };

  for (int first = 0; first < samples; first += kSamples) {
    const int s = first + lane % kSamples;
    const Map map = maps[min(s / in.points, in.levels - 1)];
    records[lane] = full_record_of(find_corners(sample, map), sample.weight);
    warp_sync();
    if (first + kSamples < samples) sample = sample_of(s + kSamples);
    const int count = min(kSamples, samples - first);
#pragma unroll 1  // fewer registers; the gradient is in L1 from the second time on
    for (int own = 0; own < kOwn; ++own) {
      float grad[N];
      grad_at(own, part * N, grad);
      const int slot = kShared ? group : (own * kGroups + group) * kSamples;
#pragma unroll 1
      for (int j = 0; j < count; j += kTogether * kStep) {
        const FullRecord* theirs = records + slot + j;
        float dot[kDots] = {};
        for (int channel = part * N; channel - part * N < in.channels; channel += kGroup * N) {
          if (in.channels > kGroup * N) grad_at(own, channel, grad);
          if (channel >= in.channels) continue;
          if (want_dots) {
            multiply<kTogether>(theirs, kStep, args.value + head_first + channel, pixel_bytes, grad,
                                dot);
          }
          if constexpr (kSums != Sums::none) {
            if (want_sums)
              scatter<kTogether, kSums>(args, theirs, kStep, head_first + channel, scale, grad);
          }
        }
        if (!want_dots) continue;
        const int which = sum_apart<kGroup>(dot, part);
        constexpr int kLeft = kDots > kGroup ? kDots / kGroup : 1;
        constexpr int kSame = kGroup > kDots ? kGroup / kDots : 1;
        if (part % kSame == 0) {
          float* to = dots[slot + j + which / 4 * kStep].lane + which % 4;
#pragma unroll
          for (int i = 0; i < kLeft; ++i) to[i] = dot[i];
        }
      }
    }
    warp_sync();  // dots are written
    if (want_dots && my_query >= 0 && s < samples)
      store_dots(args, my_row + s, records[lane], map, dots[lane].lane);
    warp_sync();  // records and dots are used again
  }
}

// A warp a row: what its gradient and its weights have at most.
template <typename T>
__global__ void __launch_bounds__(kDeformThreads) exact_bounds(const BackwardArgs<T> args) {
  const DeformSizes& in = args.in;
  const int64_t rows = int64_t{in.batch} * in.queries * in.heads;
  const int samples = in.samples(), lane = threadIdx.x % kWarp;
  const auto largest = [](unsigned most, float v) {
    const float size = fabsf(v);
    return isfinite(size) ? max(most, __float_as_uint(size)) : most;
  };
  for (int64_t row = int64_t{blockIdx.x} * kDeformWarps + threadIdx.x / kWarp; row < rows;
       row += int64_t{gridDim.x} * kDeformWarps) {
    unsigned grad = 0, weight = 0;
    for (int c = lane; c < in.channels; c += kWarp)
      grad = largest(grad, to_float(args.grad[row * in.channels + c]));
    for (int s = lane; s < samples; s += kWarp)
      weight =
          largest(weight, load_float<T>(args.read.weights, args.read.floats(1), row * samples + s));
    const int64_t image = row / in.heads / in.queries;
    ExactBounds& bounds = args.exact.bounds[image * in.heads + row % in.heads];
    atomicMax(&bounds.grad, grad);
    atomicMax(&bounds.weight, weight);
  }
}

template <typename T>
__global__ void __launch_bounds__(kDeformThreads)
    exact_result(const ExactSums exact, const DeformSizes in, T* to) {
  const int64_t count = int64_t{in.batch} * in.pixels * in.heads * in.channels;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / in.channels, image = row / in.heads / in.pixels;
    const int exponent = exact_exponent(exact, static_cast<int>(image * in.heads + row % in.heads));
    to[i] = from_float<T>(exact_sum(exact, i, exponent));
  }
}

// Both begin at a whole vector.
template <typename T>
__global__ void __launch_bounds__(kDeformThreads)
    round_sums(const float* from, T* to, int64_t count) {
  constexpr int kLanes = 4;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = begin; i < count / kLanes; i += step) {
    const auto wide = load<float, kLanes>(from + i * kLanes);
    Pack<T, kLanes> pack;
#pragma unroll
    for (int l = 0; l < kLanes; ++l) pack.lane[l] = from_float<T>(wide.lane[l]);
    store(to + i * kLanes, pack);
  }
  for (int64_t i = count / kLanes * kLanes + begin; i < count; i += step)
    to[i] = from_float<T>(from[i]);
}

}  // namespace hk
