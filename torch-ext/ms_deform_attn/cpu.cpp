// Multi-scale deformable attention on the CPU: checks, threads and memory around the kernels of
// cpu/ms_deform_attn.
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "checks.h"
#include "gradients.h"
#include "hk/memory.h"
#include "hk/tensor.h"
#include "ms_deform_attn/ms_deform_attn.h"
#include "registration.h"

namespace {

using hk::ScalarType;
using hk::Tensor;

constexpr const char* kForward = "ms_deform_attn";
constexpr const char* kBackward = "ms_deform_attn_backward";

// A second thread pays above a few microseconds of work: so many vectors of corners.
constexpr int64_t kVectorsPerThread = 16384;

// Heads are packed where each pixel is read so many times, else read in place.
constexpr int64_t kPackedHalfReads = 3;

// The gradient of value is summed by so many threads at least, where each chunk of queries reads a
// pixel often enough to pay for a sum of its own.
constexpr int64_t kChunkTasks = 8;
constexpr int64_t kChunkReads = 2;

// Outputs above this size are written around the caches.
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

// Places in one packed head are 32-bit.
constexpr int64_t kMaxHead = INT32_MAX;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void check_device(const char* op, const char* name, const Tensor& t, const Tensor&, bool) {
  hk::check_on_cpu(op, name, t);
}

hk::LevelSizes checked_levels(const char* op, const hk::DeformArguments& a) {
  check_tensors(op, a, check_device);
  hk::LevelSizes levels = hk::read_levels(op, a.spatial_shapes);
  const int64_t width = ceil_div(a.value.size(3), hk::kDeformLanes) * hk::kDeformLanes;
  STD_TORCH_CHECK((levels.pixels + 1) * width <= kMaxHead, op, ": value has shape ",
                  hk::shape_text(a.value), ": one head of ", levels.pixels, " pixels and ", width,
                  " channels (whole vectors) is above ", kMaxHead, " elements");
  hk::check_pixels(op, levels, a.value);
  if (a.level_start_index) hk::check_starts(op, *a.level_start_index, levels);
  return levels;
}

// The inputs as the kernels take them, and what keeps their memory alive.
class Inputs {
 public:
  explicit Inputs(const hk::DeformArguments& a, const hk::LevelSizes& levels)
      : value_(torch::stable::contiguous(a.value)),
        locations_(torch::stable::contiguous(a.sampling_locations)),
        weights_(torch::stable::contiguous(a.attention_weights)),
        zero_pixel_(a.value.size(3)) {
    std::fill_n(zero_pixel_.get(), value_.size(3), 0.0f);
    view_ = {
        .value_type = hk::dtype_of(value_),
        .location_type = hk::dtype_of(locations_),
        .weight_type = hk::dtype_of(weights_),
        .value = value_.const_data_ptr(),
        .locations = locations_.const_data_ptr(),
        .weights = weights_.const_data_ptr(),
        .heights = levels.heights.data(),
        .widths = levels.widths.data(),
        .batch = value_.size(0),
        .pixels = value_.size(1),
        .heads = value_.size(2),
        .channels = value_.size(3),
        .queries = locations_.size(1),
        .levels = locations_.size(3),
        .points = locations_.size(4),
        .zero_pixel = zero_pixel_.get(),
    };
  }
  const hk::DeformInputs& view() const { return view_; }

 private:
  Tensor value_, locations_, weights_;
  hk::FloatScratch zero_pixel_;
  hk::DeformInputs view_;
};

// Reads of pixels by one query of one head.
int64_t reads_of(const hk::DeformInputs& in) { return 4 * in.levels * in.points; }

int64_t vectors_of(const hk::DeformInputs& in) { return ceil_div(in.channels, hk::kDeformLanes); }

// In place, pixels have to be whole vectors.
bool packs(const hk::DeformInputs& in) {
  if (in.channels % hk::kDeformLanes != 0) return true;
  return 2 * in.queries * reads_of(in) >= kPackedHalfReads * in.pixels;
}

int64_t bytes_of(const Tensor& t) { return t.numel() * static_cast<int64_t>(t.element_size()); }

// A head's row has to be whole lines: of a line that two heads share, each would write a part.
bool streams(const Tensor& to, const hk::DeformInputs& in) {
  const int64_t row = in.channels * static_cast<int64_t>(to.element_size());
  return bytes_of(to) > kStreamMinBytes && row % 64 == 0;
}

Tensor ms_deform_attn(const Tensor& value, const Tensor& spatial_shapes,
                      const std::optional<Tensor>& level_start_index,
                      const Tensor& sampling_locations, const Tensor& attention_weights) {
  const hk::DeformArguments a{value, spatial_shapes, level_start_index, sampling_locations,
                              attention_weights};
  const hk::LevelSizes levels = checked_levels(kForward, a);
  const hk::DeformKernels& kernels = hk::ms_deform_attn_kernels();

  const int64_t sizes[] = {value.size(0), sampling_locations.size(1),
                           value.size(2) * value.size(3)};
  Tensor out = hk::empty(value, sizes);
  if (!has_samples(a)) return torch::stable::zero_(out);

  const Inputs inputs(a, levels);
  const hk::DeformInputs& in = inputs.view();
  hk::advise_huge_pages(out.mutable_data_ptr(), bytes_of(out));
  const hk::DeformForward args{
      .in = in,
      .out = out.mutable_data_ptr(),
      .packed = packs(in),
      .stream = streams(out, in),
  };
  const int64_t heads = args.packed ? 1 : in.heads;  // that one item of work has
  torch::stable::parallel_for(0, in.batch * in.queries * in.heads / heads,
                              ceil_div(kVectorsPerThread, reads_of(in) * vectors_of(in) * heads),
                              [&](int64_t begin, int64_t end) {
                                const hk::FloatScratch scratch(kernels.forward_scratch(args));
                                kernels.forward(args, scratch.get(), begin, end);
                              });
  return out;
}

// How many runs the queries of a head are cut into. Depends on the shape alone, and so do the bits
// of the gradient of value.
int64_t query_chunks(const hk::DeformInputs& in) {
  const int64_t wanted = ceil_div(kChunkTasks, in.batch * in.heads);
  const int64_t paying = in.queries * reads_of(in) / (kChunkReads * in.pixels);
  return std::max<int64_t>(1, std::min(wanted, std::min(paying, in.queries)));
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward(
    const Tensor& grad, const Tensor& value, const Tensor& spatial_shapes,
    const std::optional<Tensor>& level_start_index, const Tensor& sampling_locations,
    const Tensor& attention_weights, bool want_value, bool want_locations, bool want_weights,
    bool) {  // deterministic: it always is
  const hk::DeformArguments a{value, spatial_shapes, level_start_index, sampling_locations,
                              attention_weights};
  const hk::LevelSizes levels = checked_levels(kBackward, a);
  hk::check_grad(kBackward, grad, a, check_device);
  const hk::DeformKernels& kernels = hk::ms_deform_attn_kernels();

  hk::DeformGradients gradients(a, want_value, want_locations, want_weights);
  if (!has_samples(a) || !gradients.any_wanted()) return gradients.tensors();

  const Inputs inputs(a, levels);
  const hk::DeformInputs& in = inputs.view();
  const Tensor out_grad = torch::stable::contiguous(grad);
  const int64_t wanted_chunks = query_chunks(in);
  const int64_t queries_per_chunk = ceil_div(in.queries, wanted_chunks);
  const int64_t chunks = ceil_div(in.queries, queries_per_chunk);
  std::optional<hk::FloatScratch> partial;
  if (want_value && chunks > 1) {
    partial.emplace(in.batch * in.heads * chunks * (in.pixels + 1) * vectors_of(in) *
                    hk::kDeformLanes);
  }
  for (hk::Gradient* large : {&gradients.value, &gradients.locations}) {
    if (large->wanted) hk::advise_huge_pages(large->data(), bytes_of(large->tensor));
  }
  const hk::DeformBackward args{
      .in = in,
      .grad = out_grad.const_data_ptr(),
      .grad_value = gradients.value.data(),
      .grad_locations = gradients.locations.data(),
      .grad_weights = gradients.weights.data(),
      .partial = partial ? partial->get() : nullptr,
      .chunks = chunks,
      .queries_per_chunk = queries_per_chunk,
      .stream = want_value && !partial && streams(gradients.value.tensor, in),
  };
  const int64_t task_vectors = (queries_per_chunk * reads_of(in) + in.pixels) * vectors_of(in);
  torch::stable::parallel_for(0, in.batch * in.heads * chunks,
                              ceil_div(kVectorsPerThread, task_vectors),
                              [&](int64_t begin, int64_t end) {
                                const hk::FloatScratch scratch(kernels.backward_scratch(args));
                                kernels.backward(args, scratch.get(), begin, end);
                              });
  if (partial) {
    torch::stable::parallel_for(
        0, in.batch * in.heads * in.pixels, ceil_div(kVectorsPerThread, chunks * vectors_of(in)),
        [&](int64_t begin, int64_t end) { kernels.sum_chunks(args, begin, end); });
  }
  return gradients.tensors();
}

std::string cpu_isa() { return hk::ms_deform_attn_isa(); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("cpu_isa", TORCH_BOX(&cpu_isa));
}
