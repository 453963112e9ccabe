// The last step of sums over rows: those of groups of rows become elements of a tensor.
#pragma once

#include "hk/convert.cuh"
#include "hk/reduce.cuh"

namespace hk {

constexpr int kMaxColumnSums = 2;

// partial: [groups, sums, cols].
struct ColumnSums {
  const float* partial;
  int groups;
  int64_t cols;
  int sums;
  void* to[kMaxColumnSums];  // [cols] each; null: not wanted
  DType dtype[kMaxColumnSums];
};

constexpr int kStripColumns = kWarp;
constexpr int kStripThreads = 16;

// A block takes a strip of columns: thread y those of groups y, y + kThreads, ... in order; then
// kThreads lanes of a warp add those of a column. One kernel for all types: it is short.
template <int kThreads>
__global__ void __launch_bounds__(kStripColumns* kThreads) sum_groups(const ColumnSums args) {
  __shared__ float parts[kThreads][kStripColumns + 1];
  const int64_t all = args.cols * args.sums, first = int64_t{blockIdx.x} * kStripColumns;
  const int64_t column = first + threadIdx.x;
  float sum = 0;
  if (column < all) {
#pragma unroll 16
    for (int g = threadIdx.y; g < args.groups; g += kThreads) {
      sum += args.partial[g * all + column];
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const int thread = threadIdx.y * kStripColumns + threadIdx.x;
  const int part = thread % kThreads, strip_column = thread / kThreads;
  sum = group_sum(parts[part][strip_column], kThreads);
  const int64_t found = first + strip_column;
  if (part != 0 || found >= all) return;
  const int which = found < args.cols ? 0 : 1;
  const int64_t at = found - which * args.cols;
  if (args.to[which] == nullptr) return;
  switch (args.dtype[which]) {
    case DType::f32:
      static_cast<float*>(args.to[which])[at] = sum;
      break;
    case DType::bf16:
      static_cast<__nv_bfloat16*>(args.to[which])[at] = from_float<__nv_bfloat16>(sum);
      break;
    case DType::f16:
      static_cast<__half*>(args.to[which])[at] = from_float<__half>(sum);
      break;
  }
}

inline cudaError_t launch_sum_groups(const ColumnSums& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(args.cols * args.sums, kStripColumns));
  sum_groups<kStripThreads><<<blocks, dim3(kStripColumns, kStripThreads), 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace hk
