// The gradient of value where queries are the pixels of maps.
//
// A block has a tile of 8 x 8 queries of one head, which fall on few pixels of each level. Level by
// level it sorts what they add by pixel, sums a pixel's in registers, and adds the sum to memory: a
// sixth as many additions as there are corners, when locations are within a few pixels of their
// query.
#pragma once

#include "hk/atomic.cuh"
#include "ms_deform_attn/backward.cuh"

namespace hk {

// A thread has one sample at once, so that a query has so many.
constexpr int kTilePoints = kDeformThreads / kTileQueries;
constexpr int kTileEntries = 4 * kDeformThreads;

// Pixels that a tile's samples fall on, by a hash; what finds no place is added one by one.
constexpr int kSlotsLog2 = 10;
constexpr int kSlots = 1 << kSlotsLog2;
constexpr int kSlotsPerThread = kSlots / kDeformThreads;
constexpr int kProbes = 16;
constexpr int kFree = -1;

static_assert(kSlots >= kTileEntries, "there is a place for each");

// factor * the gradient of a query, of the 64, is added to the pixel of a slot.
struct alignas(8) Entry {
  float factor;
  int what;  // slot * kTileQueries + query
};

template <int kWidth>
struct TileMemory {
  Map maps[kMaxLevels];
  int pixels[kSlots];  // of a slot, or kFree
  int counts[kSlots];  // entries of a slot, then the first of them
  int warp_sums[kDeformWarps];
  Entry entries[kTileEntries];
  Pack<float, 4> grads[kTileQueries][kWidth];
};

// The slot of a pixel, or kFree where there is no place for it.
__device__ inline int slot_of(int* pixels, int pixel) {
  int slot = static_cast<int>(static_cast<unsigned>(pixel) * 2654435761u >> (32 - kSlotsLog2));
  for (int probe = 0; probe < kProbes; ++probe) {
    const int there = atomicCAS(pixels + slot, kFree, pixel);
    if (there == kFree || there == pixel) return slot;
    slot = (slot + 1) % kSlots;
  }
  return kFree;
}

// Turns the counts of slots into where their entries begin, and tells the number of all.
__device__ inline int sum_counts(int* counts, int* warp_sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int mine[kSlotsPerThread], sum = 0;
#pragma unroll
  for (int i = 0; i < kSlotsPerThread; ++i) {
    mine[i] = counts[threadIdx.x * kSlotsPerThread + i];
    sum += mine[i];
  }
  int before = sum;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = shuffle_up(before, step);
    if (lane >= step) before += other;
  }
  if (lane == kWarp - 1) warp_sums[warp] = before;
  __syncthreads();
  before -= sum;
  int all = 0;
#pragma unroll
  for (int w = 0; w < kDeformWarps; ++w) {
    if (w < warp) before += warp_sums[w];
    all += warp_sums[w];
  }
#pragma unroll
  for (int i = 0; i < kSlotsPerThread; ++i) {
    counts[threadIdx.x * kSlotsPerThread + i] = before;
    before += mine[i];
  }
  return all;
}

// kWidth: vectors of four channels that the lanes of a group have, one each.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kDeformThreads, 4)
    deform_scatter_tiles(const BackwardArgs<T> args) {
  constexpr int kLanes = 4;
  constexpr int kGroups = kDeformThreads / kWidth;
  __shared__ TileMemory<kWidth> shared;
  const DeformSizes& in = args.in;
  if (!read_maps(args.maps, in.levels, in.pixels, shared.maps)) {
    const int64_t elements = int64_t{in.batch} * in.pixels * in.heads * in.channels;
    fill_nan(args.grad_value, DType::f32, elements);
    return;
  }
  const int group = threadIdx.x / kWidth, part = threadIdx.x % kWidth;
  const int my_query = threadIdx.x / kTilePoints, my_point = threadIdx.x % kTilePoints;
  const int samples = in.samples();
  const int64_t pixel_elements = int64_t{in.heads} * in.channels;
  const Work<kTileRows> work(in, shared.maps, true);

  for (int item = blockIdx.x; item < work.items; item += gridDim.x) {
    const int head = item / work.per_head;
    const TilePlace tile = find_tile(shared.maps, item % work.per_head, kTileRows);
    const Map& of_queries = shared.maps[tile.level];
    const WarpRows all = {head / in.heads, head % in.heads, of_queries.start, in.queries,
                          tile.x,          tile.y,          of_queries.width, of_queries.height};
    const auto query_of = [&](int i) {
      const int column = tile.x + i % kTileWidth, line = tile.y + i / kTileWidth;
      return column < of_queries.width && line < of_queries.height
                 ? of_queries.start + line * of_queries.width + column
                 : -1;
    };
    for (int i = threadIdx.x; i < kTileQueries * kWidth; i += kDeformThreads) {
      const int query = query_of(i / kWidth), channel = i % kWidth * kLanes;
      const bool there = query >= 0 && channel < in.channels;
      load_grad(args.grad + row_of(in, all, query) * in.channels + channel, there,
                shared.grads[i / kWidth][i % kWidth].lane);
    }
    float* to =
        args.grad_value + (int64_t{all.image} * in.pixels * in.heads + all.head) * in.channels;
    const int query = query_of(my_query);
    const int64_t my_row = row_of(in, all, query) * samples;
    for (int level = 0; level < in.levels; ++level) {
      for (int first = 0; first < in.points; first += kTilePoints) {
        const int point = first + my_point;
        const Sample sample = query >= 0 && point < in.points
                                  ? args.read(my_row + level * in.points + point)
                                  : SampleReader::none();
        for (int i = threadIdx.x; i < kSlots; i += kDeformThreads) {
          shared.pixels[i] = kFree;
          shared.counts[i] = 0;
        }
        __syncthreads();

        const Record record = record_of(find_corners(sample, shared.maps[level]), sample.weight);
        int slot[4], rank[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          slot[c] = kFree;
          if (record.pixel[c] < 0) continue;
          slot[c] = slot_of(shared.pixels, record.pixel[c]);
          if (slot[c] != kFree) {
            rank[c] = atomicAdd(shared.counts + slot[c], 1);
            continue;
          }
          for (int v = 0; v * kLanes < in.channels; ++v) {
            Pack<float, kLanes> term = shared.grads[my_query][v];
#pragma unroll
            for (int i = 0; i < kLanes; ++i) term.lane[i] *= record.factor[c];
            add_to(to + record.pixel[c] * pixel_elements + v * kLanes, term);
          }
        }
        __syncthreads();
        const int count = sum_counts(shared.counts, shared.warp_sums);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (slot[c] == kFree) continue;
          shared.entries[shared.counts[slot[c]] + rank[c]] = {record.factor[c],
                                                              slot[c] * kTileQueries + my_query};
        }
        __syncthreads();

        // Each group has as many entries, whatever their pixels: a pixel's sum may have two parts.
        const int each = (count + kGroups - 1) / kGroups;
        const int end = min((group + 1) * each, count);
        Pack<float, kLanes> sum = {};
        int current = kFree;
        const auto flush = [&] {
          if (current != kFree && part * kLanes < in.channels)
            add_to(to + shared.pixels[current] * pixel_elements + part * kLanes, sum);
        };
        for (int e = group * each; e < end; ++e) {
          const Entry entry = shared.entries[e];
          const Pack<float, kLanes> grad = shared.grads[entry.what % kTileQueries][part];
          if (entry.what / kTileQueries != current) {
            flush();
            current = entry.what / kTileQueries;
            sum = {};
          }
#pragma unroll
          for (int i = 0; i < kLanes; ++i)
            sum.lane[i] = fmaf(entry.factor, grad.lane[i], sum.lane[i]);
        }
        flush();
        __syncthreads();  // all of it is used again
      }
    }
  }
}

}  // namespace hk
