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
  SampleReader<T> read;
  const T* value;
  T* out;
};

// Adds what kTogether samples say of N channels. The loads come before the first sum.
template <int kTogether, typename T, int N>
__device__ inline void gather(const Record* records, int step, const T* value, int pixel_bytes,
                              float (&sum)[N]) {
  Words<T, N> corner[kTogether][4];
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      corner[s][c].load_from(pixel_at(value, records[s * step].at(c), pixel_bytes));
  }
#pragma unroll
  for (int s = 0; s < kTogether; ++s) {
    if (!records[s * step].exists()) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = records[s * step].factor[c];
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = fmaf(factor, corner[s][c].at(i), sum[i]);
    }
  }
}

// Samples that a group has on their way at once, and blocks that a multiprocessor has: more of the
// one leaves registers for fewer of the other. An encoder in bfloat16 takes 146 us with one sample
// and 159 with two; a decoder in float 27.9 and 26.9.
HK_HOST_DEVICE constexpr int forward_together(int element_bytes, int rows) {
  return element_bytes < 4 && rows != 1 ? 1 : 2;
}
constexpr int forward_blocks(int element_bytes, int lanes, int group, int rows) {
  const int sums = rows == 1 ? lanes : lanes * rows * group / kWarp;
  if (group == 16 || sums > 8) return 2;
  return forward_together(element_bytes, rows) == 1 ? 4 : 3;
}

template <typename T, int N, int kGroup, int kRows>
__global__ void __launch_bounds__(kDeformThreads,
                                  forward_blocks(sizeof(T), N, kGroup, kRows) - kFewerBlocks)
    deform_forward(const ForwardArgs<T> args) {
  constexpr int kGroups = kWarp / kGroup;
  constexpr bool kShared = kRows == 1;                 // by all groups
  constexpr int kOwn = kShared ? 1 : kRows / kGroups;  // rows of a group
  constexpr int kSamples = kWarp / kRows;              // of a row, at once
  constexpr int kTogether = forward_together(sizeof(T), kRows);
  static_assert(kShared || kRows % kGroups == 0, "groups have whole rows");
  static_assert(kSamples % kTogether == 0);

  __shared__ Maps maps;
  __shared__ Record all_records[kDeformWarps][kWarp];
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
    fill_nan(args.out, int64_t{in.batch} * in.queries * in.heads * in.channels);
    return;
  }
  if (rows.image >= in.batch) return;  // the whole warp
  Record* records = all_records[threadIdx.x / kWarp];
  const int pixel_bytes = in.heads * in.channels * static_cast<int>(sizeof(T));
  for (int channel = part * N; channel - part * N < in.channels; channel += kGroup * N) {
    const bool live = channel < in.channels;  // else what it reads is not wanted
    const T* from = args.value +
                    (int64_t{rows.image} * in.pixels * in.heads + rows.head) * in.channels +
                    (live ? channel : 0);
    float sum[kOwn][N] = {};
    for (int first = 0; first < samples; first += kSamples) {
      const int s = first + lane % kSamples;
      const Map map = maps[min(s / in.points, in.levels - 1)];
      records[lane] = record_of(find_corners(sample, map), sample.weight);
      warp_sync();
      const bool last = first + kSamples >= samples;  // then the next channels begin anew
      if (!last || in.channels > kGroup * N)
        sample = sample_of(last ? lane % kSamples : s + kSamples);
      const int count = min(kSamples, samples - first);
      if constexpr (kShared) {
#pragma unroll 1
        for (int j = 0; j < count; j += kTogether * kGroups)
          gather<kTogether>(records + j + group, kGroups, from, pixel_bytes, sum[0]);
      } else {
#pragma unroll
        for (int own = 0; own < kOwn; ++own) {
          const Record* mine = records + (own * kGroups + group) * kSamples;
#pragma unroll 1
          for (int j = 0; j < count; j += kTogether)
            gather<kTogether>(mine + j, 1, from, pixel_bytes, sum[own]);
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
      store(args.out + row_of(in, rows.image, rows.head, query) * in.channels + channel, pack);
    }
  }
}

}  // namespace hk
