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
  const ForwardArgs<T> kernel{
      .in = sizes_of(in),
      .maps = in.maps,
      .read = reader_of<T>(in),
      .value = static_cast<const T*>(in.value),
      .out = static_cast<T*>(args.out),
  };
  if (!vectors) return launch<T, 1, kScalarGroup, 1>(in, kernel, stream);
  constexpr int kWide = kGroupChannels / kLanes, kNarrow = kWide / 2;
  const DeformLaunch shape = launch_of(in, kLanes);
  if (shape.rows_per_warp == 1) return launch<T, kLanes, kWide, 1>(in, kernel, stream);
  return shape.group == kNarrow ? launch<T, kLanes, kNarrow, kWarp / kNarrow>(in, kernel, stream)
                                : launch<T, kLanes, kWide, 8>(in, kernel, stream);
}

}  // namespace

cudaError_t ms_deform_attn(const DeformForward& args, cudaStream_t stream) {
  return with_float_type(args.in.value_type, [&](auto tag) {
    return launch<typename decltype(tag)::type>(args, stream);
  });
}

}  // namespace hk
