// Multi-scale deformable attention on a CUDA device: checks, device, stream and memory around the
// kernels of csrc/ms_deform_attn.
#include <cuda_runtime_api.h>

#include <optional>
#include <tuple>

#include "checks.h"
#include "gradients.h"
#include "hk/cuda.h"
#include "ms_deform_attn/ms_deform_attn.h"
#include "registration.h"

namespace {

using hk::ScalarType;
using hk::Tensor;

constexpr const char* kForward = "ms_deform_attn";
constexpr const char* kBackward = "ms_deform_attn_backward";

void check_device(const char* op, const char* name, const Tensor& t, const Tensor& value,
                  bool integers) {
  STD_TORCH_CHECK(value.is_cuda(), op,
                  ": value is not on a CUDA device, but this is the CUDA kernel");
  STD_TORCH_CHECK(hk::same_cuda_device(t, value) || (integers && t.is_cpu()), op, ": ", name,
                  " is not on the device of value, CUDA ", value.get_device_index(),
                  integers ? ", nor on the CPU" : "");
}

// Kernels count sizes in int.
void check_counts(const char* op, const hk::DeformArguments& a) {
  const auto sizes = a.sampling_locations.sizes();
  STD_TORCH_CHECK(sizes[3] <= hk::kMaxLevels, op, ": sampling_locations has ", sizes[3],
                  " levels, must be at most ", hk::kMaxLevels, " on CUDA");
  const int64_t pixel_bytes = 4 * a.value.size(2) * a.value.size(3);
  for (const int64_t count :
       {sizes[0], sizes[1], sizes[3] * sizes[4], a.value.size(1), pixel_bytes}) {
    STD_TORCH_CHECK(count <= INT32_MAX, op, ": value has shape ", hk::shape_text(a.value),
                    ", sampling_locations ", hk::shape_text(a.sampling_locations),
                    ": batch, pixels, 4 * heads * channels, queries and levels * points must be "
                    "at most ",
                    INT32_MAX, " on CUDA");
  }
}

// The maps as kernels take them, and what keeps their memory alive. What is on the device is not
// waited for: the kernels check it themselves.
class Maps {
 public:
  Maps(const char* op, const hk::DeformArguments& a) {
    const int64_t levels = a.spatial_shapes.size(0);
    const bool known = a.spatial_shapes.is_cpu();
    std::optional<hk::LevelSizes> sizes;
    if (known) {
      sizes = hk::read_levels(op, a.spatial_shapes);
      hk::check_pixels(op, *sizes, a.value);
      for (int64_t l = 0; l < levels; ++l) {
        view_.heights[l] = static_cast<int32_t>(sizes->heights[l]);
        view_.widths[l] = static_cast<int32_t>(sizes->widths[l]);
      }
    } else {
      shapes_.emplace(torch::stable::contiguous(a.spatial_shapes));
      view_.shapes = hk::integers_of(*shapes_);
    }
    if (!a.level_start_index) return;
    const Tensor& starts = *a.level_start_index;
    hk::check_starts_shape(op, starts, levels);
    if (!starts.is_cpu()) {
      starts_.emplace(torch::stable::contiguous(starts));
      view_.starts = hk::integers_of(*starts_);
    } else if (known) {
      hk::check_starts(op, starts, *sizes);
    } else {
      const Tensor given = torch::stable::contiguous(starts);
      view_.has_starts = true;
      for (int64_t l = 0; l < levels; ++l) {
        const int64_t start = hk::integers_of(given)[l];
        view_.given_starts[l] =
            start >= 0 && start <= hk::kMaxArea ? static_cast<int32_t>(start) : -1;
      }
    }
  }
  const hk::DeformMaps& view() const { return view_; }

 private:
  std::optional<Tensor> shapes_, starts_;
  hk::DeformMaps view_ = {};
};

class Inputs {
 public:
  Inputs(const hk::DeformArguments& a, const Maps& maps)
      : value_(torch::stable::contiguous(a.value)),
        locations_(torch::stable::contiguous(a.sampling_locations)),
        weights_(torch::stable::contiguous(a.attention_weights)) {
    view_ = {
        .value_type = hk::dtype_of(value_),
        .location_type = hk::dtype_of(locations_),
        .weight_type = hk::dtype_of(weights_),
        .value = value_.const_data_ptr(),
        .locations = locations_.const_data_ptr(),
        .weights = weights_.const_data_ptr(),
        .batch = value_.size(0),
        .pixels = value_.size(1),
        .heads = value_.size(2),
        .channels = value_.size(3),
        .queries = locations_.size(1),
        .levels = locations_.size(3),
        .points = locations_.size(4),
        .maps = maps.view(),
    };
  }
  const hk::DeformInputs& view() const { return view_; }

 private:
  Tensor value_, locations_, weights_;
  hk::DeformInputs view_;
};

void check_status(const char* op, cudaError_t status) {
  STD_TORCH_CHECK(status == cudaSuccess, op,
                  ": the kernel was not launched: ", cudaGetErrorString(status));
}

Tensor ms_deform_attn(const Tensor& value, const Tensor& spatial_shapes,
                      const std::optional<Tensor>& level_start_index,
                      const Tensor& sampling_locations, const Tensor& attention_weights) {
  const hk::DeformArguments a{value, spatial_shapes, level_start_index, sampling_locations,
                              attention_weights};
  check_tensors(kForward, a, check_device);
  check_counts(kForward, a);
  const int32_t device = value.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Maps maps(kForward, a);

  const int64_t sizes[] = {value.size(0), sampling_locations.size(1),
                           value.size(2) * value.size(3)};
  Tensor out = hk::empty(value, sizes);
  if (!has_samples(a)) return torch::stable::zero_(out);
  const Inputs inputs(a, maps);
  check_status(kForward, hk::ms_deform_attn({.in = inputs.view(), .out = out.mutable_data_ptr()},
                                            hk::current_stream(device)));
  return out;
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward(
    const Tensor& grad, const Tensor& value, const Tensor& spatial_shapes,
    const std::optional<Tensor>& level_start_index, const Tensor& sampling_locations,
    const Tensor& attention_weights, bool want_value, bool want_locations, bool want_weights,
    bool deterministic) {
  const hk::DeformArguments a{value, spatial_shapes, level_start_index, sampling_locations,
                              attention_weights};
  check_tensors(kBackward, a, check_device);
  hk::check_grad(kBackward, grad, a, check_device);
  check_counts(kBackward, a);
  const int32_t device = value.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Maps maps(kBackward, a);

  hk::DeformGradients gradients(a, want_value, want_locations, want_weights);
  if (!has_samples(a) || !gradients.any_wanted()) return gradients.tensors();

  const Inputs inputs(a, maps);
  const Tensor out_grad = torch::stable::contiguous(grad);
  hk::DeformBackward args{
      .in = inputs.view(),
      .grad = out_grad.const_data_ptr(),
      .grad_value = gradients.value.data(),
      .grad_locations = gradients.locations.data(),
      .grad_weights = gradients.weights.data(),
      .workspace = nullptr,
      .exact = deterministic,
  };
  // Sums of 16-bit gradients are float, and exact ones wider still: memory of torch's, which the
  // stream's next user has only after this one.
  std::optional<Tensor> workspace;
  if (const int64_t bytes = hk::deform_workspace(args); bytes > 0) {
    const int64_t size[] = {bytes};
    workspace.emplace(torch::stable::new_empty(value, size, ScalarType::Byte));
    args.workspace = workspace->mutable_data_ptr();
  }
  check_status(kBackward, hk::ms_deform_attn_backward(args, hk::current_stream(device)));
  return gradients.tensors();
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward));
}
