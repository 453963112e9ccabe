// The kernel of the forward pass.
//
// A warp makes records of 32 samples, one a lane, then its groups of lanes read the corners of
// their rows' samples, a vector a lane. Records are the warp's own: no barrier of the block.
#pragma once

#include "hk/words.cuh"
#include "ms_deform_attn/samples.cuh"

namespace hk {

template <typename T>
struct ForwardArgs {
  DeformSizes in;
  DeformMaps maps;
  SampleReader read;
  const T* value;
  T* out;
  bool tiles;
};

// Adds what kTogether samples say of N channels. The loads come before the first sum.
template <int kTogether, typename T, int N>
__device__ inline void gather(const Record* records, int step, const T* value, int pixel_bytes,
                              bool live, float (&sum)[N]) {
  Words<T, N> corner[kTogether][4];
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int pixel = records[s * step].pixel[c];
      corner[s][c] = {};
      if (pixel >= 0 && live) corner[s][c].load_from(pixel_at(value, pixel, pixel_bytes));
    }
  }
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = records[s * step].factor[c];
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = fmaf(factor, corner[s][c].at(i), sum[i]);
    }
  }
}

// Blocks that a multiprocessor has at once: with fewer, threads have the registers for more sums.
constexpr int forward_blocks(int lanes, int group, int rows) {
  const int sums = rows == 1 ? lanes : lanes * rows * group / kWarp;
  return group == 16 || sums > 8 ? 2 : 3;
}

template <typename T, int N, int kGroup, int kRows>
__global__ void __launch_bounds__(kDeformThreads, forward_blocks(N, kGroup, kRows))
    deform_forward(const ForwardArgs<T> args) {
  constexpr int kGroups = kWarp / kGroup;
  constexpr bool kShared = Work<kRows>::kShared;
  constexpr int kOwn = kShared ? 1 : kRows / kGroups;  // rows of a group
  constexpr int kSamples = kWarp / kRows;              // of a row, at once
  constexpr int kTogether = kSamples < 2 ? 1 : 2;
  static_assert(kShared || kRows % kGroups == 0, "groups have whole rows");

  __shared__ Map maps[kMaxLevels];
  __shared__ Record all_records[kDeformWarps][kWarp];
  const DeformSizes& in = args.in;
  if (!read_maps(args.maps, in.levels, in.pixels, maps)) {
    fill_nan(args.out, int64_t{in.batch} * in.queries * in.heads * in.channels);
    return;
  }
  const int lane = threadIdx.x % kWarp, group = lane / kGroup, part = lane % kGroup;
  Record* records = all_records[threadIdx.x / kWarp];
  const int samples = in.samples();
  const int pixel_bytes = in.heads * in.channels * static_cast<int>(sizeof(T));
  const Work<kRows> work(in, maps, args.tiles);

  for (int item = blockIdx.x; item < work.items; item += gridDim.x) {
    const WarpRows rows = work.rows(in, maps, args.tiles, item);
    const int my_query = rows.query(lane / kSamples);
    const int64_t my_row = row_of(in, rows, my_query) * samples;
    const auto sample_of = [&](int s) {
      return my_query >= 0 && s < samples ? args.read(my_row + s) : SampleReader::none();
    };
    for (int channel = part * N; channel - part * N < in.channels; channel += kGroup * N) {
      const bool live = channel < in.channels && rows.image < in.batch;
      const T* from = args.value +
                      (int64_t{rows.image} * in.pixels * in.heads + rows.head) * in.channels +
                      channel;
      float sum[kOwn][N] = {};
      Sample sample = sample_of(lane % kSamples);
      for (int first = 0; first < samples; first += kSamples) {
        const int s = first + lane % kSamples;
        const Map& map = maps[min(s / in.points, in.levels - 1)];
        records[lane] = record_of(find_corners(sample, map), sample.weight);
        warp_sync();
        if (first + kSamples < samples) sample = sample_of(s + kSamples);
        const int count = min(kSamples, samples - first);
        if constexpr (kShared) {
#pragma unroll 1
          for (int j = 0; j < count; j += kTogether * kGroups)
            gather<kTogether>(records + j + group, kGroups, from, pixel_bytes, live, sum[0]);
        } else {
#pragma unroll
          for (int own = 0; own < kOwn; ++own) {
            const Record* mine = records + (own * kGroups + group) * kSamples;
#pragma unroll 1
            for (int j = 0; j < count; j += kTogether)
              gather<kTogether>(mine + j, 1, from, pixel_bytes, live, sum[own]);
          }
        }
        warp_sync();  // records are used again
      }
      if constexpr (kShared) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
#pragma unroll
          for (int step = kGroup; step < kWarp; step *= 2)
            sum[0][i] += shuffle_xor(sum[0][i], step, kWarp);
        }
      }
#pragma unroll
      for (int own = 0; own < kOwn; ++own) {
        const int query = rows.query(own * kGroups + (kShared ? 0 : group));
        if (query < 0 || !live || (kShared && group != 0)) continue;
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.lane[i] = from_float<T>(sum[own][i]);
        store(args.out + row_of(in, rows, query) * in.channels + channel, pack);
      }
    }
  }
}

}  // namespace hk
