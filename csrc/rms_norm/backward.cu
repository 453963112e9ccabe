// Gradients of the RMS norm, also of a sum: from a contract to launches.
#include "rms_norm/backward.cuh"
#include "rms_norm/rms_norm.h"

namespace hk {
namespace {

BackwardPlan plan(const RmsNormBackward& args) {
  using Op = RmsGrad<float, true, false>;
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
  const auto run = [&](auto is_whole, auto is_summed) {
    using Op = RmsGrad<T, decltype(is_whole)::value, decltype(is_summed)::value>;
    return launch_rows_backward<Op>(rows, plan(args), args.workspace, args.dweight != nullptr,
                                    stream);
  };
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  if (args.grad_summed == nullptr) return whole ? run(kYes, kNo) : run(kNo, kNo);
  return whole ? run(kYes, kYes) : run(kNo, kYes);
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

}  // namespace hk
