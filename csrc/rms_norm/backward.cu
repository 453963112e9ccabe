// Gradients of the RMS norm, also of a sum and with a gate: from a contract to launches.
#include "rms_norm/backward.cuh"
#include "rms_norm/rms_norm.h"

namespace hk {
namespace {

BackwardPlan plan(const RmsNormBackward& args) {
  using Op = RmsGrad<float>;
  return plan_backward(args.rows, args.cols, args.dtype, Op::kPacks, Op::kDots, Op::kColumnSums);
}

template <typename T>
cudaError_t launch(const RmsNormBackward& args, cudaStream_t stream) {
  const RmsGradRows<T> rows{
      .grad = static_cast<const T*>(args.grad),
      .grad_stride = args.grad_stride,
      .x = static_cast<const T*>(args.x),
      .x_stride = args.x_stride,
      .grad_summed = static_cast<const T*>(args.grad_summed),
      .grad_summed_stride = args.grad_summed_stride,
      .weight = {args.weight.data, args.weight.dtype, args.weight.offset},
      .rstd = args.rstd,
      .dx = static_cast<T*>(args.dx),
      .rows = args.rows,
      .cols = args.cols,
  };
  const bool whole =
      at_vectors(kLanes<T>, args.rows, args.cols, RowsAt{args.grad, args.grad_stride},
                 RowsAt{args.x, args.x_stride}, RowsAt{args.grad_summed, args.grad_summed_stride},
                 RowsAt{args.dx, args.cols}, RowsAt{args.weight.data, 0});
  return launch_rows_backward<RmsGrad<T>>(rows, whole, plan(args), args.workspace,
                                          args.dweight != nullptr, stream);
}

}  // namespace

int64_t backward_workspace(const RmsNormBackward& args) {
  const BackwardPlan of = plan(args);
  return (args.dweight == nullptr ? 0 : of.partial_floats) + of.mean_floats;
}

cudaError_t rms_norm_backward(const RmsNormBackward& args, cudaStream_t stream) {
  const cudaError_t status = with_float_type(
      args.dtype, [&](auto tag) { return launch<typename decltype(tag)::type>(args, stream); });
  if (status != cudaSuccess || args.dweight == nullptr) return status;
  const BackwardPlan of = plan(args);
  return launch_sum_groups({args.workspace + of.mean_floats,
                            static_cast<int>(of.shape.groups),
                            args.cols,
                            1,
                            {args.dweight},
                            {args.weight.dtype}},
                           stream);
}

namespace {

BackwardPlan plan(const GatedRmsNormBackward& args) {
  using Op = GatedGrad<float>;
  return plan_backward(args.rows, args.cols, args.dtype, Op::kPacks, Op::kDots, Op::kColumnSums);
}

template <typename T>
cudaError_t launch(const GatedRmsNormBackward& args, cudaStream_t stream) {
  const GatedGradRows<T> rows{
      .grad = static_cast<const T*>(args.grad),
      .grad_stride = args.grad_stride,
      .x = static_cast<const T*>(args.x),
      .x_stride = args.x_stride,
      .gate = static_cast<const T*>(args.gate),
      .gate_stride = args.gate_stride,
      .weight = {args.weight.data, args.weight.dtype, args.weight.offset},
      .rstd = args.rstd,
      .dx = static_cast<T*>(args.dx),
      .dgate = static_cast<T*>(args.dgate),
      .norm_first = args.norm_before_gate,
      .rows = args.rows,
      .cols = args.cols,
  };
  const bool whole = at_vectors(kLanes<T>, args.rows, args.cols,
                                RowsAt{args.grad, args.grad_stride}, RowsAt{args.x, args.x_stride},
                                RowsAt{args.gate, args.gate_stride}, RowsAt{args.dx, args.cols},
                                RowsAt{args.dgate, args.cols}, RowsAt{args.weight.data, 0});
  return launch_rows_backward<GatedGrad<T>>(rows, whole, plan(args), args.workspace,
                                            args.dweight != nullptr, stream);
}

}  // namespace

int64_t backward_workspace(const GatedRmsNormBackward& args) {
  const BackwardPlan of = plan(args);
  return (args.dweight == nullptr ? 0 : of.partial_floats) + of.mean_floats;
}

cudaError_t gated_rms_norm_backward(const GatedRmsNormBackward& args, cudaStream_t stream) {
  const cudaError_t status = with_float_type(
      args.dtype, [&](auto tag) { return launch<typename decltype(tag)::type>(args, stream); });
  if (status != cudaSuccess || args.dweight == nullptr) return status;
  const BackwardPlan of = plan(args);
  return launch_sum_groups({args.workspace + of.mean_floats,
                            static_cast<int>(of.shape.groups),
                            args.cols,
                            1,
                            {args.dweight},
                            {args.weight.dtype}},
                           stream);
}

}  // namespace hk
