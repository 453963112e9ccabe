// Gradients of layer norm: from a contract to launches.
#include "layer_norm/backward.cuh"

#include "layer_norm/layer_norm.h"

namespace hk {
namespace {

bool wants_sums(const LayerNormBackward& args) {
  return args.dweight != nullptr || args.dbias != nullptr;
}

BackwardPlan plan(const LayerNormBackward& args) {
  using Op = LayerGrad<float, true>;
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
  const BackwardPlan of = plan(args);
  return whole ? launch_rows_backward<LayerGrad<T, true>>(rows, of, args.workspace,
                                                          wants_sums(args), stream)
               : launch_rows_backward<LayerGrad<T, false>>(rows, of, args.workspace,
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
