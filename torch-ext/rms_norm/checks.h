// Checks that the norms share on every backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "hk/outputs.h"
#include "hk/tensor.h"

namespace hk {

inline void check_rows(const char* op, const Tensor& x) {
  check_float_type(op, "x", x);
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x has no dims, needs at least one");
}

// One element for each column of x, in its dtype or in float.
inline void check_weight(const char* op, const char* name, const Tensor& weight, const Tensor& x) {
  check_beside(op, name, weight, x);
  STD_TORCH_CHECK(
      weight.scalar_type() == x.scalar_type() || weight.scalar_type() == ScalarType::Float, op,
      ": ", name, " is ", dtype_text(weight.scalar_type()), ", must be Float or the dtype of x, ",
      dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(weight.dim() == 1, op, ": ", name, " has shape ", shape_text(weight),
                  ", must have one dim");
  STD_TORCH_CHECK(weight.size(0) == x.size(x.dim() - 1), op, ": ", name, " has ", weight.size(0),
                  " elements, last dim of x has ", x.size(x.dim() - 1));
}

inline void check_eps(const char* op, double eps) {
  STD_TORCH_CHECK(eps >= 0 && std::isfinite(eps), op, ": eps is ", eps,
                  ", must be finite and at least 0");
}

// A tensor that has to be like x, element by element.
inline void check_like_x(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  check_beside(op, name, t, x);
  STD_TORCH_CHECK(t.scalar_type() == x.scalar_type(), op, ": ", name, " is ",
                  dtype_text(t.scalar_type()), ", must be the dtype of x, ",
                  dtype_text(x.scalar_type()));
  STD_TORCH_CHECK(same_shape(t, x), op, ": ", name, " has shape ", shape_text(t),
                  ", must be the shape of x, ", shape_text(x));
}

// A statistic that a forward saved: one float for each row of x.
inline void check_statistic(const char* op, const char* name, const Tensor& saved,
                            const Tensor& x) {
  check_beside(op, name, saved, x);
  STD_TORCH_CHECK(saved.scalar_type() == ScalarType::Float, op, ": ", name, " is ",
                  dtype_text(saved.scalar_type()), ", must be Float");
  STD_TORCH_CHECK(saved.is_contiguous(), op, ": ", name, " is not contiguous");
  const auto found = saved.sizes(), rows = x.sizes();
  STD_TORCH_CHECK(std::equal(found.begin(), found.end(), rows.begin(), rows.end() - 1), op, ": ",
                  name, " has shape ", shape_text(saved), ", must be that of x, ", shape_text(x),
                  ", but for the last dim");
}

// A gradient of what is not there.
inline void check_wanted(const char* op, const char* name, const std::optional<Tensor>& parameter,
                         bool wanted) {
  STD_TORCH_CHECK(parameter || !wanted, op, ": want_d", name, " is true without a ", name);
}

// What an RMS norm takes.
inline void check_input(const char* op, const Tensor& x, const std::optional<Tensor>& weight,
                        double weight_offset) {
  check_rows(op, x);
  STD_TORCH_CHECK(std::isfinite(weight_offset), op, ": weight_offset is ", weight_offset,
                  ", must be finite");
  STD_TORCH_CHECK(weight || weight_offset == 0, op, ": weight_offset is ", weight_offset,
                  ", must be 0 without a weight");
  if (weight) check_weight(op, "weight", *weight, x);
}

// What a layer norm takes.
inline void check_input(const char* op, const Tensor& x, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias) {
  check_rows(op, x);
  if (weight) check_weight(op, "weight", *weight, x);
  if (bias) check_weight(op, "bias", *bias, x);
}

inline Sizes leading_sizes(const Tensor& x) {
  const auto sizes = x.sizes();
  return sizes.slice(0, sizes.size() - 1);
}

// Of a weight or a bias, in its dtype; without elements where it is not wanted.
inline Tensor parameter_gradient(const Tensor& x, const std::optional<Tensor>& parameter,
                                 bool wanted) {
  const int64_t cols[] = {wanted && parameter ? parameter->size(0) : 0};
  return empty(x, cols, parameter ? parameter->scalar_type() : x.scalar_type());
}

// The same of no rows, or of rows without columns.
inline Tensor zero_parameter_gradient(const Tensor& x, const std::optional<Tensor>& parameter,
                                      bool wanted) {
  Tensor gradient = parameter_gradient(x, parameter, wanted);
  return torch::stable::zero_(gradient);
}

}  // namespace hk
