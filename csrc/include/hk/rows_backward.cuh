// Backward of norms over rows: gradients of a row, and sums over rows for the gradients of weights,
// in one pass.
//
// An Op tells what is computed. It has
//   Element
//   kPacks                   vectors of a row that a thread has, as registers allow
//   kDots                    means of a row that its gradients need
//   kColumnSums              sums over rows
//   Args                     with rows, cols, weight
//   Values                   a vector of every input of a row
//   load(whole, args, row, live, column) -> Values, zeros where not live
//   load_late(whole, args, row, live, column, values)        what its gradients alone need
//   reduce(whole, args, values, column, weight, dots, sums)  adds to each
//   write(whole, args, row, column, values, weight, means)   writes the gradients
// where whole is a Whole, or tells whether rows are.
#pragma once

#include "hk/column_sums.cuh"
#include "hk/launch.h"
#include "hk/reduce.cuh"
#include "hk/weight.cuh"

namespace hk {

template <typename Op>
constexpr int kLanesOf = kLanes<typename Op::Element>;

// Sums over the rows of each group, [groups, kColumnSums, cols]; null: not wanted.
struct GroupSums {
  float* partial;
  int rows_per_group;
};

// Threads of a block at most: more leave too few registers for sums.
constexpr int kGroupThreads = 512;

// Rows of the block's group: from begin on, so many.
struct GroupRows {
  int64_t begin;
  int count;
};

__device__ inline GroupRows group_rows(const GroupSums& groups, int64_t rows) {
  const int64_t begin = int64_t{blockIdx.y} * groups.rows_per_group;
  const int64_t left = rows - begin;
  return {begin, left < groups.rows_per_group ? static_cast<int>(left) : groups.rows_per_group};
}

template <typename Op, typename Rows>
__device__ inline void write_sums(Rows whole, const GroupSums& groups, int64_t cols, int64_t column,
                                  const float (&sums)[Op::kColumnSums][kLanesOf<Op>]) {
#pragma unroll
  for (int s = 0; s < Op::kColumnSums; ++s) {
    Pack<float, kLanesOf<Op>> pack;
#pragma unroll
    for (int i = 0; i < kLanesOf<Op>; ++i) pack.lane[i] = sums[s][i];
    float* to = groups.partial + (int64_t{blockIdx.y} * Op::kColumnSums + s) * cols;
    write(whole, to, column, cols, pack);
  }
}

// The sums of row slots, added in their order, where a block has several.
template <typename Op>
__device__ inline void add_slots(float (&sums)[Op::kColumnSums][kLanesOf<Op>]) {
  __syncthreads();  // whoever called it before has read
  __shared__ Pack<float, kLanesOf<Op>> slots[Op::kColumnSums][kSlotThreads];
#pragma unroll
  for (int s = 0; s < Op::kColumnSums; ++s) {
#pragma unroll
    for (int i = 0; i < kLanesOf<Op>; ++i) {
      slots[s][threadIdx.y * blockDim.x + threadIdx.x].lane[i] = sums[s][i];
    }
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int slot = 1; slot < blockDim.y; ++slot) {
#pragma unroll
    for (int s = 0; s < Op::kColumnSums; ++s) {
      const auto& other = slots[s][slot * blockDim.x + threadIdx.x];
#pragma unroll
      for (int i = 0; i < kLanesOf<Op>; ++i) sums[s][i] += other.lane[i];
    }
  }
}

// A block a group. A row has blockDim.x threads with kPacks vectors each, and its slot
// threadIdx.y the rows begin + threadIdx.y, begin + threadIdx.y + blockDim.y, ... The next row is
// on its way while a row is summed. One barrier a row: partials alternate, and whoever writes one
// again has passed the barrier behind which all have read it.
template <typename Op>
__global__ void __launch_bounds__(kGroupThreads)
    rows_backward(const typename Op::Args args, const GroupSums groups) {
  constexpr int N = kLanesOf<Op>;
  constexpr Whole kWhole;
  __shared__ RowPartials<Op::kDots> partials[2];
  const GroupRows of = group_rows(groups, args.rows);
  const float share = 1 / static_cast<float>(args.cols);
  const auto column_of = [](int p) { return static_cast<int>((threadIdx.x + p * blockDim.x) * N); };
  float weight[Op::kPacks][N], sums[Op::kPacks][Op::kColumnSums][N] = {};
  typename Op::Values now[Op::kPacks], next[Op::kPacks];
  int slot = threadIdx.y;
#pragma unroll
  for (int p = 0; p < Op::kPacks; ++p) {
    read_weight<typename Op::Element>(kWhole, args.weight, column_of(p), args.cols, 1, weight[p]);
    next[p] = Op::load(kWhole, args, of.begin + slot, slot < of.count, column_of(p));
  }
  int turn = 0;
#pragma unroll 1
  for (int first = 0; first < of.count; first += blockDim.y, slot += blockDim.y) {
    const int64_t row = of.begin + slot;
    const bool live = slot < of.count;
    const int later = slot + blockDim.y;
    float dots[Op::kDots] = {};
#pragma unroll
    for (int p = 0; p < Op::kPacks; ++p) {
      now[p] = next[p];
      Op::load_late(kWhole, args, row, live, column_of(p), now[p]);
      next[p] = Op::load(kWhole, args, of.begin + later, later < of.count, column_of(p));
    }
#pragma unroll
    for (int p = 0; p < Op::kPacks; ++p) {
      Op::reduce(kWhole, args, now[p], column_of(p), weight[p], dots, sums[p]);
    }
    row_sums(dots, partials[turn]);
    turn ^= 1;
#pragma unroll
    for (int d = 0; d < Op::kDots; ++d) dots[d] = product(dots[d], share);
#pragma unroll
    for (int p = 0; p < Op::kPacks; ++p) {
      if (live) Op::write(kWhole, args, row, column_of(p), now[p], weight[p], dots);
    }
  }
  if (groups.partial == nullptr) return;
#pragma unroll
  for (int p = 0; p < Op::kPacks; ++p) {
    if (blockDim.y > 1) add_slots<Op>(sums[p]);
    if (threadIdx.y == 0) write_sums<Op>(kWhole, groups, args.cols, column_of(p), sums[p]);
  }
}

// The same in two kernels, for rows of any length and of any place in memory: terms are added in
// the same order. First the means of rows; a row has blockDim.x threads.
template <typename Op>
__global__ void __launch_bounds__(kGroupThreads)
    row_means(const typename Op::Args args, bool whole, float* means) {
  constexpr int N = kLanesOf<Op>;
  __shared__ RowPartials<Op::kDots> partials;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = row < args.rows;
  const float share = 1 / static_cast<float>(args.cols);
  float dots[Op::kDots] = {};
  float unwanted[Op::kColumnSums][N] = {};
#pragma unroll 1
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.cols; c += int64_t{blockDim.x} * N) {
    float weight[N];
    read_weight<typename Op::Element>(whole, args.weight, c, args.cols, 1, weight);
    Op::reduce(whole, args, Op::load(whole, args, row, live, c), c, weight, dots, unwanted);
  }
  row_sums(dots, partials);
  if (!live || threadIdx.x != 0) return;
#pragma unroll
  for (int d = 0; d < Op::kDots; ++d) means[row * Op::kDots + d] = product(dots[d], share);
}

// Then all else: a block a strip of columns of a group, with the slots that it has above.
template <typename Op>
__global__ void __launch_bounds__(kSlotThreads, 1)
    strips_backward(const typename Op::Args args, bool whole, const float* means,
                    const GroupSums groups) {
  constexpr int N = kLanesOf<Op>;
  const GroupRows of = group_rows(groups, args.rows);
  const int64_t column = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  float weight[N];
  read_weight<typename Op::Element>(whole, args.weight, column, args.cols, 1, weight);
  float sums[Op::kColumnSums][N] = {};
#pragma unroll 1
  for (int slot = threadIdx.y; slot < of.count; slot += blockDim.y) {
    const int64_t row = of.begin + slot;
    typename Op::Values now = Op::load(whole, args, row, true, column);
    Op::load_late(whole, args, row, true, column, now);
    float unwanted[Op::kDots] = {}, mean[Op::kDots];
    Op::reduce(whole, args, now, column, weight, unwanted, sums);
#pragma unroll
    for (int d = 0; d < Op::kDots; ++d) mean[d] = means[row * Op::kDots + d];
    Op::write(whole, args, row, column, now, weight, mean);
  }
  if (groups.partial == nullptr) return;
  if (blockDim.y > 1) add_slots<Op>(sums);
  if (threadIdx.y == 0) write_sums<Op>(whole, groups, args.cols, column, sums);
}

// What a backward has to know of its shape, the same for whoever makes room and whoever launches.
struct BackwardPlan {
  GroupLaunch shape;
  int64_t partial_floats;  // sums of groups
  int64_t mean_floats;     // means of rows, where they take a kernel of their own; they come first
};

inline BackwardPlan plan_backward(int64_t rows, int64_t cols, DType dtype, int packs, int dots,
                                  int column_sums) {
  const int lanes = kWidest / (dtype == DType::f32 ? 4 : 2);
  const GroupLaunch shape = pick_group_launch(rows, ceil_div(cols, lanes), packs, kGroupThreads);
  return {shape, shape.groups * column_sums * cols, ceil_div(rows * dots, 4) * 4};
}

// In one kernel where every row begins and ends at a vector and is not too long.
template <typename Op>
cudaError_t launch_rows_backward(const typename Op::Args& args, bool whole,
                                 const BackwardPlan& plan, float* workspace, bool want_sums,
                                 cudaStream_t stream) {
  const GroupLaunch& shape = plan.shape;
  const GroupSums groups{want_sums ? workspace + plan.mean_floats : nullptr,
                         static_cast<int>(shape.rows_per_group)};
  const auto count = static_cast<unsigned>(shape.groups);
  if (whole && shape.in_registers) {
    const dim3 block(shape.threads_per_row, shape.slots);
    rows_backward<Op><<<dim3(1, count), block, 0, stream>>>(args, groups);
    return cudaGetLastError();
  }
  const auto blocks = static_cast<unsigned>(ceil_div(args.rows, shape.slots));
  const dim3 rows(shape.threads_per_row, shape.slots);
  row_means<Op><<<blocks, rows, 0, stream>>>(args, whole, workspace);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  const int threads = shape.threads_per_row < kSlotThreads ? shape.threads_per_row : kSlotThreads;
  const dim3 strip(threads, shape.slots);
  const int64_t width = int64_t{strip.x} * kLanesOf<Op>;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.cols, width)), count);
  strips_backward<Op><<<grid, strip, 0, stream>>>(args, whole, workspace, groups);
  return cudaGetLastError();
}

}  // namespace hk
