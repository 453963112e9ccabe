// Layer norm and its gradients: from contracts to launches. One file: reading the headers of 16-bit
// types for every architecture takes as long as a dozen kernels.
#include "layer_norm/layer_norm.h"

#include "layer_norm/backward.cuh"
#include "layer_norm/forward.cuh"

namespace hk {
namespace {

// In registers where every row of every tensor begins and ends at a vector.
template <typename T>
cudaError_t launch(const LayerRows<T>& rows, const AnyWeight& weight, const AnyWeight& bias,
                   cudaStream_t stream) {
  constexpr int N = kLanes<T>;
  const RowLaunch shape = pick_row_launch(ceil_div(rows.cols, N), kLayerThreads);
  const bool whole =
      at_vectors(N, rows.rows, rows.cols, RowsAt{rows.x, rows.x_stride}, RowsAt{rows.y, rows.cols},
                 RowsAt{weight.data, 0}, RowsAt{bias.data, 0});
  const auto grid = static_cast<unsigned>(ceil_div(rows.rows, shape.rows_per_block));
  const dim3 block(shape.threads_per_row, shape.rows_per_block);
  if (!whole || shape.packs == 0) {
    layer_in_passes<<<grid, block, 0, stream>>>(rows, weight, bias, whole);
  } else if (shape.packs <= kShortLayerPacks) {
    layer_in_registers<kShortLayerPacks><<<grid, block, 0, stream>>>(rows, weight, bias);
  } else {
    layer_in_registers<kRowPacks><<<grid, block, 0, stream>>>(rows, weight, bias);
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

namespace {

bool wants_sums(const LayerNormBackward& args) {
  return args.dweight != nullptr || args.dbias != nullptr;
}

BackwardPlan plan(const LayerNormBackward& args) {
  using Op = LayerGrad<float>;
  return plan_backward(args.rows, args.cols, args.dtype, Op::kPacks, Op::kDots, Op::kColumnSums);
}

template <typename T>
cudaError_t launch(const LayerNormBackward& args, cudaStream_t stream) {
  const LayerGradRows<T> rows{
      .grad = static_cast<const T*>(args.grad),
      .grad_stride = args.grad_stride,
      .x = static_cast<const T*>(args.x),
      .x_stride = args.x_stride,
      .weight = {args.weight.data, args.weight.dtype, 0},
      .mean = args.mean,
      .mean_rest = args.mean_rest,
      .rstd = args.rstd,
      .dx = static_cast<T*>(args.dx),
      .rows = args.rows,
      .cols = args.cols,
  };
  const bool whole = at_vectors(kLanes<T>, args.rows, args.cols,
                                RowsAt{args.grad, args.grad_stride}, RowsAt{args.x, args.x_stride},
                                RowsAt{args.dx, args.cols}, RowsAt{args.weight.data, 0});
  return launch_rows_backward<LayerGrad<T>>(rows, whole, plan(args), args.workspace,
                                            wants_sums(args), stream);
}

}  // namespace

int64_t backward_workspace(const LayerNormBackward& args) {
  const BackwardPlan of = plan(args);
  return (wants_sums(args) ? of.partial_floats : 0) + of.mean_floats;
}

cudaError_t layer_norm_backward(const LayerNormBackward& args, cudaStream_t stream) {
  const cudaError_t status = with_float_type(
      args.dtype, [&](auto tag) { return launch<typename decltype(tag)::type>(args, stream); });
  if (status != cudaSuccess || !wants_sums(args)) return status;
  const BackwardPlan of = plan(args);
  return launch_sum_groups({args.workspace + of.mean_floats,
                            static_cast<int>(of.shape.groups),
                            args.cols,
                            2,
                            {args.dweight, args.dbias},
                            {args.dweight_dtype, args.dbias_dtype}},
                           stream);
}

}  // namespace hk
