// From a contract to launches: the backward pass.
#include "ms_deform_attn/backward.cuh"

#include "ms_deform_attn/dispatch.h"
#include "ms_deform_attn/tiles.cuh"

namespace hk {
namespace {

int64_t elements_of(const DeformInputs& in) {
  return in.batch * in.pixels * in.heads * in.channels;
}

int64_t mark_words(const DeformInputs& in) { return ceil_div(elements_of(in), kMarksPerWord); }

int log2_of(int64_t n) {
  int bits = 0;
  while (int64_t{1} << bits < n) ++bits;
  return bits;
}

// Blocks for so many threads' work; each takes more where there is more.
unsigned some_blocks(int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>(ceil_div(threads, kDeformThreads), 1 << 20));
}

ExactSums exact_sums(const DeformBackward& args) {
  if (!args.exact || args.grad_value == nullptr) return {};
  auto* sums = static_cast<int64_t*>(args.workspace);
  auto* marks = reinterpret_cast<unsigned*>(sums + elements_of(args.in));
  auto* bounds = reinterpret_cast<ExactBounds*>(marks + ceil_div(mark_words(args.in), 2) * 2);
  return {sums, marks, bounds, log2_of(args.in.queries * args.in.points)};
}

// Where the gradient of value is summed in float.
float* float_sums(const DeformBackward& args) {
  if (args.exact || args.grad_value == nullptr) return nullptr;
  return static_cast<float*>(args.in.value_type == DType::f32 ? args.grad_value : args.workspace);
}

template <typename T, int N, int kGroup, int kRows, bool kExact = false>
cudaError_t launch(const DeformInputs& in, const BackwardArgs<T>& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(blocks_for(in, kRows, args.tiles));
  deform_backward<T, N, kGroup, kRows, kExact><<<blocks, kDeformThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

// A vector is four floats of the sums, whatever the type of value.
constexpr int kVector = 4;

// Vectors of the widest head whose tiles are summed.
constexpr int kWidestTile = 16;

template <typename T>
cudaError_t launch_rows(const DeformInputs& in, const BackwardArgs<T>& args, bool vectors,
                        DeformLaunch shape, cudaStream_t stream) {
  const bool spread = shape.rows_per_warp == 1;
  if (args.exact.sums != nullptr) {
    return vectors ? launch<T, kVector, 8, 1, true>(in, args, stream)
                   : launch<T, 1, kScalarGroup, 1, true>(in, args, stream);
  }
  if (!vectors) {
    return spread ? launch<T, 1, kScalarGroup, 1>(in, args, stream)
                  : launch<T, 1, kScalarGroup, 8>(in, args, stream);
  }
  switch (shape.group) {
    case 2:
    case 4:
      return spread ? launch<T, kVector, 4, 1>(in, args, stream)
                    : launch<T, kVector, 4, 8>(in, args, stream);
    case 8:
      return spread ? launch<T, kVector, 8, 1>(in, args, stream)
                    : launch<T, kVector, 8, 8>(in, args, stream);
    default:
      return spread ? launch<T, kVector, 16, 1>(in, args, stream)
                    : launch<T, kVector, 16, 4>(in, args, stream);
  }
}

// Whether tiles of queries sum what they add to value before they add it.
bool sums_tiles(const DeformInputs& in, bool vectors, bool tiles) {
  return tiles && vectors && in.channels <= kVector * kWidestTile;
}

// The gradient of value from tiles, the other two as ever.
template <typename T>
cudaError_t launch_tiles(const DeformInputs& in, const BackwardArgs<T>& args, DeformLaunch shape,
                         cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(blocks_for(in, kTileRows, true));
  if (in.channels <= kVector * 8) {
    deform_scatter_tiles<T, 8><<<blocks, kDeformThreads, 0, stream>>>(args);
  } else {
    deform_scatter_tiles<T, kWidestTile><<<blocks, kDeformThreads, 0, stream>>>(args);
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  if (args.grad_locations == nullptr && args.grad_weights == nullptr) return status;
  BackwardArgs<T> others = args;
  others.grad_value = nullptr;
  return launch_rows(in, others, true, shape, stream);
}

template <typename T>
cudaError_t launch(const DeformBackward& args, cudaStream_t stream) {
  const DeformInputs& in = args.in;
  const int64_t elements = elements_of(in);
  const auto at_vector = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % (kVector * sizeof(T)) == 0;
  };
  const bool vectors = in.channels % kVector == 0 && at_vector(in.value) && at_vector(args.grad);
  const DeformLaunch shape = launch_of(in, vectors ? kVector : 1, vectors ? 16 : kScalarGroup);
  const BackwardArgs<T> kernel{
      .in = sizes_of(in),
      .maps = in.maps,
      .read = reader_of(in),
      .value = static_cast<const T*>(in.value),
      .grad = static_cast<const T*>(args.grad),
      .grad_value = float_sums(args),
      .exact = exact_sums(args),
      .grad_locations = args.grad_locations,
      .grad_weights = args.grad_weights,
      .tiles = shape.tiles && !args.exact,
  };
  cudaError_t status = cudaSuccess;
  if (kernel.grad_value != nullptr) {
    status = cudaMemsetAsync(kernel.grad_value, 0, elements * sizeof(float), stream);
  }
  if (kernel.exact.sums != nullptr) {
    status = cudaMemsetAsync(kernel.exact.sums, 0, deform_workspace(args), stream);
    if (status != cudaSuccess) return status;
    exact_bounds<<<some_blocks(in.batch * in.queries * in.heads * kWarp), kDeformThreads, 0,
                   stream>>>(kernel);
    status = cudaGetLastError();
  }
  if (status != cudaSuccess) return status;
  status = kernel.grad_value != nullptr && sums_tiles(in, vectors, shape.tiles)
               ? launch_tiles(in, kernel, shape, stream)
               : launch_rows(in, kernel, vectors, shape, stream);
  if (status != cudaSuccess || args.grad_value == nullptr) return status;
  T* to = static_cast<T*>(args.grad_value);
  if (args.exact) {
    exact_result<<<some_blocks(elements), kDeformThreads, 0, stream>>>(kernel.exact, kernel.in, to);
  } else if constexpr (sizeof(T) < sizeof(float)) {
    round_sums<<<some_blocks(ceil_div(elements, 4)), kDeformThreads, 0, stream>>>(kernel.grad_value,
                                                                                  to, elements);
  }
  return cudaGetLastError();
}

}  // namespace

int64_t deform_workspace(const DeformBackward& args) {
  if (args.grad_value == nullptr) return 0;
  const int64_t elements = elements_of(args.in);
  if (args.exact) {
    return elements * static_cast<int64_t>(sizeof(int64_t)) + ceil_div(mark_words(args.in), 2) * 8 +
           args.in.batch * args.in.heads * static_cast<int64_t>(sizeof(ExactBounds));
  }
  return args.in.value_type == DType::f32 ? 0 : elements * static_cast<int64_t>(sizeof(float));
}

cudaError_t ms_deform_attn_backward(const DeformBackward& args, cudaStream_t stream) {
  return with_float_type(args.in.value_type, [&](auto tag) {
    return launch<typename decltype(tag)::type>(args, stream);
  });
}

}  // namespace hk
