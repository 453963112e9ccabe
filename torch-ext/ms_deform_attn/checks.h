// Checks of the arguments, the same on every device: each names the op, the argument and the value,
// and comes before any work.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "hk/tensor.h"

namespace hk {

// Whole pixels and what is left of a coordinate are found exactly up to here.
inline constexpr int64_t kMaxSize = int64_t{1} << 22;

// Beyond this the sum of areas could overflow before it is held against the pixels of value.
inline constexpr int64_t kMaxArea = int64_t{1} << 30;

// Refuses a tensor that is where the kernel does not read. integers: shapes and starts.
using CheckDevice = void (*)(const char* op, const char* name, const Tensor& t, const Tensor& value,
                             bool integers);

struct DeformArguments {
  const Tensor& value;
  const Tensor& spatial_shapes;
  const std::optional<Tensor>& level_start_index;
  const Tensor& sampling_locations;
  const Tensor& attention_weights;
};

inline void check_dim(const char* op, const char* name, const Tensor& t, int64_t dims,
                      const char* form) {
  STD_TORCH_CHECK(t.dim() == dims, op, ": ", name, " has shape ", shape_text(t), ", must be ",
                  form);
}

inline void check_partner_type(const char* op, const char* name, const Tensor& t,
                               const Tensor& value) {
  STD_TORCH_CHECK(t.scalar_type() == value.scalar_type() || t.scalar_type() == ScalarType::Float,
                  op, ": ", name, " is ", dtype_text(t.scalar_type()),
                  ", must be Float or the dtype of value, ", dtype_text(value.scalar_type()));
}

inline void check_tensors(const char* op, const DeformArguments& a, CheckDevice check_device) {
  check_device(op, "value", a.value, a.value, false);
  check_device(op, "sampling_locations", a.sampling_locations, a.value, false);
  check_device(op, "attention_weights", a.attention_weights, a.value, false);
  check_float_type(op, "value", a.value);
  check_partner_type(op, "sampling_locations", a.sampling_locations, a.value);
  check_partner_type(op, "attention_weights", a.attention_weights, a.value);
  check_dim(op, "value", a.value, 4, "(batch, pixels, heads, channels)");
  check_dim(op, "sampling_locations", a.sampling_locations, 6,
            "(batch, queries, heads, levels, points, 2)");
  check_dim(op, "attention_weights", a.attention_weights, 5,
            "(batch, queries, heads, levels, points)");
  const auto sizes = a.sampling_locations.sizes();
  STD_TORCH_CHECK(sizes[0] == a.value.size(0) && sizes[2] == a.value.size(2) && sizes[5] == 2, op,
                  ": sampling_locations has shape ", shape_text(a.sampling_locations),
                  ", must be (", a.value.size(0), ", queries, ", a.value.size(2),
                  ", levels, points, 2) for value of shape ", shape_text(a.value));
  const auto check_integers = [&](const char* name, const Tensor& t) {
    check_device(op, name, t, a.value, true);
    STD_TORCH_CHECK(t.scalar_type() == ScalarType::Long, op, ": ", name, " is ",
                    dtype_text(t.scalar_type()), ", must be Long");
  };
  check_integers("spatial_shapes", a.spatial_shapes);
  if (a.level_start_index) check_integers("level_start_index", *a.level_start_index);
  const auto weights = a.attention_weights.sizes();
  STD_TORCH_CHECK(std::equal(weights.begin(), weights.end(), sizes.begin()), op,
                  ": attention_weights has shape ", shape_text(a.attention_weights),
                  ", sampling_locations ", shape_text(a.sampling_locations),
                  ": all but the last dim must be the same");
  STD_TORCH_CHECK(a.spatial_shapes.dim() == 2 && a.spatial_shapes.size(0) == sizes[3] &&
                      a.spatial_shapes.size(1) == 2,
                  op, ": spatial_shapes has shape ", shape_text(a.spatial_shapes), ", must be (",
                  sizes[3], ", 2), one height and width for each level");
}

// Heights, widths and first pixels of the levels, in the range that the kernels count with.
struct LevelSizes {
  std::vector<int64_t> heights, widths, starts;
  int64_t pixels = 0;
};

inline const int64_t* integers_of(const Tensor& contiguous) {
  return static_cast<const int64_t*>(contiguous.const_data_ptr());
}

// From shapes on the CPU.
inline LevelSizes read_levels(const char* op, const Tensor& spatial_shapes) {
  const Tensor shapes = torch::stable::contiguous(spatial_shapes);
  LevelSizes found;
  for (int64_t level = 0; level < shapes.size(0); ++level) {
    const int64_t height = integers_of(shapes)[2 * level];
    const int64_t width = integers_of(shapes)[2 * level + 1];
    STD_TORCH_CHECK(height >= 1 && width >= 1 && height <= kMaxSize && width <= kMaxSize, op,
                    ": spatial_shapes[", level, "] is (", height, ", ", width,
                    "), each must be from 1 to ", kMaxSize);
    found.heights.push_back(height);
    found.widths.push_back(width);
    found.starts.push_back(found.pixels);
    found.pixels += height * width;
    STD_TORCH_CHECK(found.pixels <= kMaxArea, op, ": spatial_shapes has ", found.pixels,
                    " pixels up to level ", level, ", must be at most ", kMaxArea);
  }
  return found;
}

// With a pixel more than value has, a kernel would read what is behind it.
inline void check_pixels(const char* op, const LevelSizes& levels, const Tensor& value) {
  STD_TORCH_CHECK(levels.pixels == value.size(1), op, ": spatial_shapes has ", levels.pixels,
                  " pixels, value has ", value.size(1));
}

inline void check_starts_shape(const char* op, const Tensor& starts, int64_t levels) {
  STD_TORCH_CHECK(starts.dim() == 1 && starts.size(0) == levels, op,
                  ": level_start_index has shape ", shape_text(starts), ", must be (", levels,
                  "), one start for each level");
}

// Both on the CPU.
inline void check_starts(const char* op, const Tensor& given, const LevelSizes& levels) {
  check_starts_shape(op, given, static_cast<int64_t>(levels.starts.size()));
  const Tensor starts = torch::stable::contiguous(given);
  for (size_t level = 0; level < levels.starts.size(); ++level) {
    STD_TORCH_CHECK(integers_of(starts)[level] == levels.starts[level], op, ": level_start_index[",
                    level, "] is ", integers_of(starts)[level], ", by spatial_shapes it is ",
                    levels.starts[level]);
  }
}

inline void check_grad(const char* op, const Tensor& grad, const DeformArguments& a,
                       CheckDevice check_device) {
  check_device(op, "grad", grad, a.value, false);
  STD_TORCH_CHECK(grad.scalar_type() == a.value.scalar_type(), op, ": grad is ",
                  dtype_text(grad.scalar_type()), ", must be the dtype of value, ",
                  dtype_text(a.value.scalar_type()));
  const int64_t row = a.value.size(2) * a.value.size(3);
  STD_TORCH_CHECK(grad.dim() == 3 && grad.size(0) == a.value.size(0) &&
                      grad.size(1) == a.sampling_locations.size(1) && grad.size(2) == row,
                  op, ": grad has shape ", shape_text(grad), ", must be (", a.value.size(0), ", ",
                  a.sampling_locations.size(1), ", ", row, ")");
}

inline bool has_samples(const DeformArguments& a) {
  return a.value.numel() > 0 && a.attention_weights.numel() > 0;
}

}  // namespace hk
