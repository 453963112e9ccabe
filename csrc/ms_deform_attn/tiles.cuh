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

// Pixels about the tile that have a slot each; one elsewhere has a slot for each of its entries.
constexpr int kWindow = 32;
constexpr int kSlots = kWindow * kWindow;
constexpr int kAllSlots = kSlots + kTileEntries;
constexpr int kSlotsPerThread = kSlots / kDeformThreads;

// The tile of that number among those of all levels: its map, and its first pixel there.
struct TilePlace {
  int level, x, y;
};

__device__ inline TilePlace find_tile(const Maps& maps, int number) {
  int level = 0;
  for (int count;
       number >= (count = static_cast<int>(tiles_of(maps[level].height, maps[level].width)));
       ++level)
    number -= count;
  const int across = static_cast<int>(ceil_div(maps[level].width, kTileSide));
  return {level, number % across * kTileSide, number / across * kTileSide};
}

// factor * the gradient of a query, of the 64, is added to the pixel of a slot.
struct alignas(8) Entry {
  float factor;
  int what;  // slot * kTileQueries + query
};

// Lanes of a group, each with four channels at once: a wider head is as many items.
constexpr int kTileLanes = 8;
constexpr int kTileChannels = 4 * kTileLanes;

struct TileMemory {
  Maps maps;
  int counts[kSlots];           // entries of a slot, then the first of them
  int elsewhere[kTileEntries];  // pixels outside the window
  int elsewhere_count;
  int warp_sums[kDeformWarps];
  Entry entries[kTileEntries];
  Pack<float, 4> grads[kTileQueries][kTileLanes];
};

// Turns the counts of slots into where their entries begin, and tells the number of all.
__device__ inline int sum_counts(int* counts, int* warp_sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  auto& mine = reinterpret_cast<Pack<int, kSlotsPerThread>*>(counts)[threadIdx.x];
  const Pack<int, kSlotsPerThread> given = mine;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kSlotsPerThread; ++i) sum += given.lane[i];
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
  Pack<int, kSlotsPerThread> first;
#pragma unroll
  for (int i = 0; i < kSlotsPerThread; ++i) {
    first.lane[i] = before;
    before += given.lane[i];
  }
  mine = first;
  return all;
}

template <typename T>
__global__ void __launch_bounds__(kDeformThreads, 4 - kFewerBlocks)
    deform_scatter_tiles(const BackwardArgs<T> args) {
  constexpr int kLanes = 4;
  constexpr int kGroups = kDeformThreads / kTileLanes;
  __shared__ TileMemory shared;
  const DeformSizes& in = args.in;
  if (!read_maps(args.maps, in.levels, in.pixels, shared.maps)) {
    const int64_t elements = int64_t{in.batch} * in.pixels * in.heads * in.channels;
    fill_nan(args.grad_value, elements);
    return;
  }
  const int group = threadIdx.x / kTileLanes, part = threadIdx.x % kTileLanes;
  const int my_query = threadIdx.x / kTilePoints, my_point = threadIdx.x % kTilePoints;
  const int samples = in.samples(), pixel_elements = in.heads * in.channels;
  int per_head = 0;
  for (int l = 0; l < in.levels; ++l)
    per_head += static_cast<int>(tiles_of(shared.maps[l].height, shared.maps[l].width));

  const int turns = (in.channels + kTileChannels - 1) / kTileChannels;
  const int items = in.batch * in.heads * turns * per_head;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int turn = item / per_head, first_channel = turn % turns * kTileChannels;
    const int image = turn / turns / in.heads, head = turn / turns % in.heads;
    const TilePlace tile = find_tile(shared.maps, item % per_head);
    const auto query_of = [&](int i) {
      const Map own = shared.maps[tile.level];
      const int column = tile.x + i % kTileSide, line = tile.y + i / kTileSide;
      return column < own.width && line < own.height ? own.start + line * own.width + column : -1;
    };
    for (int i = threadIdx.x; i < kTileQueries * kTileLanes; i += kDeformThreads) {
      const int query = query_of(i / kTileLanes), channel = first_channel + i % kTileLanes * kLanes;
      const bool there = query >= 0 && channel < in.channels;
      load_grad(args.grad + row_of(in, image, head, query) * in.channels + channel, there,
                shared.grads[i / kTileLanes][i % kTileLanes].lane);
    }
    float* to = args.grad_value + (int64_t{image} * in.pixels * in.heads + head) * in.channels +
                first_channel + part * kLanes;
    const bool live = first_channel + part * kLanes < in.channels;
    const int query = query_of(my_query);
    const int64_t my_row = row_of(in, image, head, query) * samples;
    const auto sample_of = [&](int level, int point) {
      return query >= 0 && level < in.levels && point < in.points
                 ? args.read(my_row + level * in.points + point)
                 : Sample::none();
    };
    Sample sample = sample_of(0, my_point);
    for (int level = 0; level < in.levels; ++level) {
      const Map map = shared.maps[level];
      // The window is about what the middle of the tile is in this level.
      const int left = static_cast<int>((tile.x + kTileSide * 0.5f) /
                                        shared.maps.width[tile.level] * map.width) -
                       kWindow / 2;
      const int upper = static_cast<int>((tile.y + kTileSide * 0.5f) /
                                         shared.maps.height[tile.level] * map.height) -
                        kWindow / 2;
      for (int first = 0; first < in.points; first += kTilePoints) {
        reinterpret_cast<Pack<int, kSlotsPerThread>*>(shared.counts)[threadIdx.x] = {};
        if (threadIdx.x == 0) shared.elsewhere_count = 0;
        const Corners corners = find_corners(sample, map);
        const float gx = 1 - corners.fx, gy = 1 - corners.fy;
        const float factors[4] = {gx * gy * sample.weight, corners.fx * gy * sample.weight,
                                  gx * corners.fy * sample.weight,
                                  corners.fx * corners.fy * sample.weight};
        const bool last = first + kTilePoints >= in.points;
        sample =
            sample_of(last ? level + 1 : level, last ? my_point : first + kTilePoints + my_point);
        __syncthreads();

        int places[4];  // slot + kAllSlots * rank, to spare registers; -1 where there is none
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          places[c] = -1;
          if (corners.pixel[c] < 0) continue;
          const int within = corners.pixel[c] - map.start;
          const int line = within / map.width, column = within - line * map.width;
          const int x = column - left, y = line - upper;
          if (x >= 0 && y >= 0 && x < kWindow && y < kWindow) {
            const int slot = y * kWindow + x;
            places[c] = slot + kAllSlots * atomicAdd(shared.counts + slot, 1);
          } else {
            const int rank = atomicAdd(&shared.elsewhere_count, 1);
            shared.elsewhere[rank] = corners.pixel[c];
            places[c] = kSlots + rank + kAllSlots * rank;
          }
        }
        __syncthreads();
        const int near = sum_counts(shared.counts, shared.warp_sums);
        __syncthreads();
        const int count = near + shared.elsewhere_count;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (places[c] < 0) continue;
          const int slot = places[c] % kAllSlots, rank = places[c] / kAllSlots;
          const int place = (slot < kSlots ? shared.counts[slot] : near) + rank;
          Entry& entry = shared.entries[place];
          entry.factor = factors[c];
          entry.what = slot * kTileQueries + my_query;
        }
        __syncthreads();

        // Each group has as many entries, whatever their pixels: a pixel's sum may have two parts.
        const int each = (count + kGroups - 1) / kGroups;
        const int begin = group * each, end = min(begin + each, count);
        const auto flush = [&](int at, const Pack<float, kLanes>& sum) {
          const int pixel =
              at < kSlots ? map.start + (upper + at / kWindow) * map.width + left + at % kWindow
                          : shared.elsewhere[at - kSlots];
          if (live) add_to(to + int64_t{pixel} * pixel_elements, sum);
        };
        if (begin < end) {
          Entry entry = shared.entries[begin];
          int current = entry.what / kTileQueries;
          Pack<float, kLanes> sum = {};
          for (int e = begin; e < end; ++e) {
            const Pack<float, kLanes> grad = shared.grads[entry.what % kTileQueries][part];
            const float factor = entry.factor;
            const int at = entry.what / kTileQueries;
            entry = shared.entries[min(e + 1, kTileEntries - 1)];
            if (at != current) {
              flush(current, sum);
              current = at;
              sum = {};
            }
#pragma unroll
            for (int i = 0; i < kLanes; ++i) sum.lane[i] = fmaf(factor, grad.lane[i], sum.lane[i]);
          }
          flush(current, sum);
        }
        __syncthreads();  // all of it is used again
      }
    }
  }
}

}  // namespace hk
