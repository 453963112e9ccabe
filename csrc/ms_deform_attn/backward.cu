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

template <typename T, int N, int kGroup, int kRows, Sums kSums>
cudaError_t launch(const DeformInputs& in, const BackwardArgs<T>& args, cudaStream_t stream) {
  deform_backward<T, N, kGroup, kRows, kSums>
      <<<blocks_for(in, kRows), kDeformThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

// A vector is four floats of the sums, whatever the type of value.
constexpr int kVector = 4;

// All gradients at once, or those that are wanted, that of value into float sums.
template <typename T>
cudaError_t launch_sums(const DeformInputs& in, const BackwardArgs<T>& args, bool vectors,
                        cudaStream_t stream) {
  constexpr Sums kFloats = Sums::floats;
  if (!vectors) return launch<T, 1, kScalarGroup, 1, Sums::either>(in, args, stream);
  constexpr int kWide = kGroupChannels / kVector, kNarrow = kWide / 2;
  // Wide heads have a warp a row however many rows there are.
  return launch_of(in, kVector, kSpreadSums).group == kNarrow
             ? launch<T, kVector, kNarrow, 8, kFloats>(in, args, stream)
             : launch<T, kVector, kWide, 1, kFloats>(in, args, stream);
}

// The gradients of locations and weights alone.
template <typename T>
cudaError_t launch_dots(const DeformInputs& in, const BackwardArgs<T>& args, bool vectors,
                        cudaStream_t stream) {
  constexpr int kLanes = kWidest / sizeof(T);
  const bool wide =
      vectors && in.channels % kLanes == 0 && is_aligned(args.value) && is_aligned(args.grad);
  if (!wide) {
    BackwardArgs<T> dots = args;
    dots.grad_value = nullptr;
    return launch_sums(in, dots, vectors, stream);
  }
  return launch<T, kLanes, kGroupChannels / kLanes, 8, Sums::none>(in, args, stream);
}

// Tiles are counted where the sizes are known, else guessed: blocks take more than one where there
// are more, and those without one leave.
unsigned tile_blocks(const DeformInputs& in) {
  int64_t per_head = 0;
  if (in.maps.shapes != nullptr) {
    per_head = ceil_div(in.queries, kTileQueries);
    per_head += per_head / 8 + 2 * in.levels;
  } else {
    for (int l = 0; l < in.levels; ++l) per_head += tiles_of(in.maps.heights[l], in.maps.widths[l]);
  }
  return static_cast<unsigned>(
      std::min<int64_t>(in.batch * in.heads * ceil_div(in.channels, kTileChannels) * per_head,
                        std::numeric_limits<int>::max()));
}

// The gradient of value from tiles of queries.
template <typename T>
cudaError_t launch_tiles(const DeformInputs& in, const BackwardArgs<T>& args, cudaStream_t stream) {
  deform_scatter_tiles<T><<<tile_blocks(in), kDeformThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

// An encoder's queries are the pixels themselves; a wrong guess is only slower.
bool sums_tiles(const DeformInputs& in, bool vectors) {
  return in.queries == in.pixels && vectors && rows_of(in) >= kSpreadRows;
}

template <typename T>
cudaError_t launch_into_floats(const DeformInputs& in, const BackwardArgs<T>& args, bool vectors,
                               cudaStream_t stream) {
  const int64_t bytes = elements_of(in) * static_cast<int64_t>(sizeof(float));
  cudaError_t status = cudaMemsetAsync(args.grad_value, 0, bytes, stream);
  if (status != cudaSuccess) return status;
  if (!sums_tiles(in, vectors)) return launch_sums(in, args, vectors, stream);
  status = launch_tiles(in, args, stream);
  if (status != cudaSuccess || (args.grad_locations == nullptr && args.grad_weights == nullptr))
    return status;
  return launch_dots(in, args, vectors, stream);
}

template <typename T>
cudaError_t launch_exactly(const DeformBackward& args, const BackwardArgs<T>& kernel, bool vectors,
                           cudaStream_t stream) {
  const DeformInputs& in = args.in;
  const cudaError_t status = cudaMemsetAsync(args.workspace, 0, deform_workspace(args), stream);
  if (status != cudaSuccess) return status;
  exact_bounds<<<some_blocks(rows_of(in) * kWarp), kDeformThreads, 0, stream>>>(kernel);
  const cudaError_t bounds = cudaGetLastError();
  if (bounds != cudaSuccess) return bounds;
  return vectors ? launch<T, kVector, kGroupChannels / kVector, 1, Sums::either>(in, kernel, stream)
                 : launch<T, 1, kScalarGroup, 1, Sums::either>(in, kernel, stream);
}

template <typename T>
cudaError_t launch(const DeformBackward& args, cudaStream_t stream) {
  const DeformInputs& in = args.in;
  const int64_t elements = elements_of(in);
  const auto at_vector = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % (kVector * sizeof(T)) == 0;
  };
  const bool vectors = in.channels % kVector == 0 && at_vector(in.value) && at_vector(args.grad);
  const BackwardArgs<T> kernel{
      .in = sizes_of(in),
      .maps = in.maps,
      .read = reader_of<T>(in),
      .value = static_cast<const T*>(in.value),
      .grad = static_cast<const T*>(args.grad),
      .grad_value = float_sums(args),
      .exact = exact_sums(args),
      .grad_locations = args.grad_locations,
      .grad_weights = args.grad_weights,
  };
  if (args.grad_value == nullptr) return launch_dots(in, kernel, vectors, stream);
  const cudaError_t status = args.exact ? launch_exactly(args, kernel, vectors, stream)
                                        : launch_into_floats(in, kernel, vectors, stream);
  if (status != cudaSuccess) return status;
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
