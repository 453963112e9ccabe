// The outputs of an op, the same on every device.
#pragma once

#include <tuple>

#include "checks.h"

namespace hk {

inline Tensor empty(const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes) {
  return torch::stable::new_empty(like, sizes, like.scalar_type());
}

// Like what it is of, or without elements where it is not wanted.
struct Gradient {
  Gradient(const Tensor& of, bool want)
      : tensor(want ? empty(of, of.sizes()) : none(of)), wanted(want) {}

  // Null where it is not wanted.
  void* data() { return wanted ? tensor.mutable_data_ptr() : nullptr; }

  Tensor tensor;
  bool wanted;

 private:
  static Tensor none(const Tensor& like) {
    const int64_t sizes[] = {0};
    return empty(like, sizes);
  }
};

struct DeformGradients {
  DeformGradients(const DeformArguments& a, bool want_value, bool want_locations, bool want_weights)
      : value(a.value, want_value),
        locations(a.sampling_locations, want_locations),
        weights(a.attention_weights, want_weights) {
    if (has_samples(a)) return;
    for (Gradient* each : {&value, &locations, &weights}) torch::stable::zero_(each->tensor);
  }

  bool any_wanted() const { return value.wanted || locations.wanted || weights.wanted; }

  std::tuple<Tensor, Tensor, Tensor> tensors() const {
    return {value.tensor, locations.tensor, weights.tensor};
  }

  Gradient value, locations, weights;
};

}  // namespace hk
