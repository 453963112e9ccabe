// RMS norm, also of a sum and with a gate: from a contract to a launch.
#include "rms_norm/rms_norm.h"

#include "rms_norm/forward.cuh"

namespace hk {

cudaError_t rms_norm(const RmsNormForward& args, cudaStream_t stream) {
  const AnyWeight weight{args.weight.data, args.weight.dtype, args.weight.offset};
  return with_float_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const NormRows<T> rows{
        .x = static_cast<const T*>(args.x),
        .x_stride = args.x_stride,
        .other = static_cast<const T*>(args.residual),
        .other_stride = args.residual_stride,
        .summed = static_cast<T*>(args.summed),
        .summed_stride = args.summed_stride,
        .y = static_cast<T*>(args.y),
        .y_stride = args.y_stride,
        .rstd = args.rstd,
        .rows = args.rows,
        .cols = args.cols,
        .eps = args.eps,
        .gate_last = false,
    };
    return args.residual == nullptr ? launch_norm<Norm::plain>(rows, weight, stream)
                                    : launch_norm<Norm::sum>(rows, weight, stream);
  });
}

cudaError_t gated_rms_norm(const GatedRmsNormForward& args, cudaStream_t stream) {
  const AnyWeight weight{args.weight.data, args.weight.dtype, args.weight.offset};
  return with_float_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const NormRows<T> rows{
        .x = static_cast<const T*>(args.x),
        .x_stride = args.x_stride,
        .other = static_cast<const T*>(args.gate),
        .other_stride = args.gate_stride,
        .summed = nullptr,
        .summed_stride = 0,
        .y = static_cast<T*>(args.y),
        .y_stride = args.cols,
        .rstd = args.rstd,
        .rows = args.rows,
        .cols = args.cols,
        .eps = args.eps,
        .gate_last = args.norm_before_gate,
    };
    return launch_norm<Norm::gated>(rows, weight, stream);
  });
}

}  // namespace hk
