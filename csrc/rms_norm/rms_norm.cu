// From a contract to a launch.
#include "rms_norm/rms_norm.h"

#include <algorithm>
#include <limits>

#include "rms_norm/forward.cuh"

namespace hk {
namespace {

template <typename T, typename W, int kLanes>
cudaError_t launch(const RowNorm<T, W>& args, cudaStream_t stream) {
  const RowLaunch shape = pick_row_launch(args.cols / kLanes);
  const int64_t blocks = ceil_div(args.rows, shape.rows_per_block);
  const dim3 grid(
      static_cast<unsigned>(std::min<int64_t>(blocks, std::numeric_limits<int>::max())));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (shape.in_registers) {
    norm_in_registers<T, W, kLanes><<<grid, block, 0, stream>>>(args);
  } else {
    norm_in_two_passes<T, W, kLanes><<<grid, block, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

// Vectors where every row of every tensor begins at one.
template <typename T, typename W>
cudaError_t launch(const RmsNormForward& args, cudaStream_t stream) {
  constexpr int kLanes = kWidest / sizeof(T);
  const RowNorm<T, W> rows{
      .x = static_cast<const T*>(args.x),
      .x_stride = args.x_stride,
      .weight = static_cast<const W*>(args.weight),
      .offset = args.offset,
      .y = static_cast<T*>(args.y),
      .rstd = args.rstd,
      .rows = args.rows,
      .cols = args.cols,
      .eps = args.eps,
  };
  const bool strides = args.cols % kLanes == 0 && (args.rows == 1 || args.x_stride % kLanes == 0);
  const bool bases = is_aligned(args.x) && is_aligned(args.y) && is_aligned(args.weight);
  return strides && bases ? launch<T, W, kLanes>(rows, stream) : launch<T, W, 1>(rows, stream);
}

}  // namespace

cudaError_t rms_norm(const RmsNormForward& args, cudaStream_t stream) {
  return with_float_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.weight == nullptr || args.weight_dtype == DType::f32)
      return launch<T, float>(args, stream);
    return launch<T, T>(args, stream);
  });
}

}  // namespace hk
