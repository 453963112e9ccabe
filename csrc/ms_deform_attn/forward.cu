// From a contract to a launch: the forward pass.
#include "ms_deform_attn/dispatch.h"
#include "ms_deform_attn/forward.cuh"

namespace hk {
namespace {

template <typename T, int N, int kGroup, int kRows>
cudaError_t launch(const DeformInputs& in, const ForwardArgs<T>& args, cudaStream_t stream) {
  deform_forward<T, N, kGroup, kRows><<<blocks_for(in, kRows), kDeformThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch(const DeformForward& args, cudaStream_t stream) {
  const DeformInputs& in = args.in;
  constexpr int kLanes = kWidest / sizeof(T);
  const bool vectors = in.channels % kLanes == 0 && is_aligned(in.value) && is_aligned(args.out);
  const DeformLaunch shape = launch_of(in, vectors ? kLanes : 1, vectors ? 16 : kScalarGroup);
  const ForwardArgs<T> kernel{
      .in = sizes_of(in),
      .maps = in.maps,
      .read = reader_of(in),
      .value = static_cast<const T*>(in.value),
      .out = static_cast<T*>(args.out),
  };
  const bool spread = shape.rows_per_warp == 1;
  if (!vectors) {
    return spread ? launch<T, 1, kScalarGroup, 1>(in, kernel, stream)
                  : launch<T, 1, kScalarGroup, 8>(in, kernel, stream);
  }
  switch (shape.group) {
    case 2:
      return spread ? launch<T, kLanes, 2, 1>(in, kernel, stream)
                    : launch<T, kLanes, 2, 16>(in, kernel, stream);
    case 4:
      return spread ? launch<T, kLanes, 4, 1>(in, kernel, stream)
                    : launch<T, kLanes, 4, 8>(in, kernel, stream);
    case 8:
      return spread ? launch<T, kLanes, 8, 1>(in, kernel, stream)
                    : launch<T, kLanes, 8, 8>(in, kernel, stream);
    default:
      return spread ? launch<T, kLanes, 16, 1>(in, kernel, stream)
                    : launch<T, kLanes, 16, 4>(in, kernel, stream);
  }
}

}  // namespace

cudaError_t ms_deform_attn(const DeformForward& args, cudaStream_t stream) {
  return with_float_type(args.in.value_type, [&](auto tag) {
    return launch<typename decltype(tag)::type>(args, stream);
  });
}

}  // namespace hk
