// Layer norm: from a contract to a launch.
#include "layer_norm/layer_norm.h"

#include "layer_norm/forward.cuh"

namespace hk {
namespace {

template <typename T, typename W>
void launch_in_registers(const RowLaunch& shape, const LayerRows<T>& rows, const AnyWeight& weight,
                         const AnyWeight& bias, cudaStream_t stream) {
  const Weight<W> factors{static_cast<const W*>(weight.data), 0};
  const Weight<W> added{static_cast<const W*>(bias.data), 0};
  const auto grid = static_cast<unsigned>(ceil_div(rows.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (shape.packs == 1) {
    layer_in_registers<1><<<grid, block, 0, stream>>>(rows, factors, added);
  } else if (shape.packs == 2) {
    layer_in_registers<2><<<grid, block, 0, stream>>>(rows, factors, added);
  } else {
    layer_in_registers<kRowPacks><<<grid, block, 0, stream>>>(rows, factors, added);
  }
}

// In registers where every row of every tensor begins and ends at a vector, and weight and bias
// have one type.
template <typename T>
cudaError_t launch(const LayerRows<T>& rows, const AnyWeight& weight, const AnyWeight& bias,
                   cudaStream_t stream) {
  constexpr int N = kLanes<T>;
  const RowLaunch shape = pick_row_launch(ceil_div(rows.cols, N), kLayerThreads);
  const bool whole =
      at_vectors(N, rows.rows, rows.cols, RowsAt{rows.x, rows.x_stride}, RowsAt{rows.y, rows.cols},
                 RowsAt{weight.data, 0}, RowsAt{bias.data, 0});
  const auto is_wide = [](const AnyWeight& w) {
    return w.data == nullptr || w.dtype == DType::f32;
  };
  const auto is_like_x = [](const AnyWeight& w) {
    return w.data == nullptr || w.dtype != DType::f32;
  };
  const bool short_row = shape.packs > 0;
  const auto grid = static_cast<unsigned>(ceil_div(rows.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (whole && short_row && is_wide(weight) && is_wide(bias)) {
    launch_in_registers<T, float>(shape, rows, weight, bias, stream);
  } else if (whole && short_row && is_like_x(weight) && is_like_x(bias)) {
    launch_in_registers<T, T>(shape, rows, weight, bias, stream);
  } else if (whole) {
    layer_in_passes<true><<<grid, block, 0, stream>>>(rows, weight, bias);
  } else {
    layer_in_passes<false><<<grid, block, 0, stream>>>(rows, weight, bias);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t layer_norm(const LayerNormForward& args, cudaStream_t stream) {
  const AnyWeight weight{args.weight.data, args.weight.dtype, 0};
  const AnyWeight bias{args.bias.data, args.bias.dtype, 0};
  return with_float_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const LayerRows<T> rows{
        .x = static_cast<const T*>(args.x),
        .x_stride = args.x_stride,
        .y = static_cast<T*>(args.y),
        .mean = args.mean,
        .mean_rest = args.mean_rest,
        .rstd = args.rstd,
        .rows = args.rows,
        .cols = args.cols,
        .eps = args.eps,
    };
    return launch<T>(rows, weight, bias, stream);
  });
}

}  // namespace hk
