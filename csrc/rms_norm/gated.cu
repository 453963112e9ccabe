// RMS norm with a gate: from a contract to a launch.
#include "rms_norm/forward.cuh"
#include "rms_norm/rms_norm.h"

namespace hk {

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
    };
    return args.norm_before_gate ? launch_norm<Norm::gate_last>(rows, weight, stream)
                                 : launch_norm<Norm::gate_first>(rows, weight, stream);
  });
}

}  // namespace hk
