// Tensors that an op writes: elements that share memory are refused, by name and before any write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hk/tensor.h"

namespace hk {

// Whether two elements of t may be one in memory. Strides that only a search could clear of it
// count as such.
inline bool may_overlap_itself(const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) > 1) dims.emplace_back(t.stride(d), t.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;  // elements from the first to the last of the dims so far
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return true;
    extent += stride * (size - 1);
  }
  return false;
}

struct Bytes {
  uintptr_t begin, end;
};

inline Bytes bytes_spanned(const Tensor& t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += t.stride(d) * (t.size(d) - 1);
  const auto begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  return {begin,
          begin + static_cast<uintptr_t>((last + 1) * static_cast<int64_t>(t.element_size()))};
}

// Of tensors that have elements. Rows of one stride that lie between each other's, as those of two
// halves of a tensor do, are apart; other tensors are when what they span is.
inline bool are_apart(const Tensor& a, const Tensor& b) {
  const Bytes left = bytes_spanned(a), right = bytes_spanned(b);
  if (left.end <= right.begin || right.end <= left.begin) return true;
  const int64_t size = static_cast<int64_t>(a.element_size());
  const int64_t stride = row_stride(a), cols = a.size(a.dim() - 1);
  if (!same_shape(a, b) || stride <= 0 || stride != row_stride(b) ||
      size != static_cast<int64_t>(b.element_size())) {
    return false;
  }
  const int64_t period = stride * size, width = cols * size;
  const int64_t apart = static_cast<int64_t>(right.begin) - static_cast<int64_t>(left.begin);
  const int64_t shift = (apart % period + period) % period;
  return shift >= width && period - shift >= width;
}

inline void check_written(const char* op, const char* name, const Tensor& t) {
  STD_TORCH_CHECK(!may_overlap_itself(t), op, ": ", name, " of shape ", shape_text(t),
                  " is written, but some of its elements share memory; pass a clone");
}

inline void check_apart(const char* op, const char* name, const Tensor& t, const char* other_name,
                        const Tensor& other) {
  STD_TORCH_CHECK(are_apart(t, other), op, ": ", name, " shares memory with ", other_name,
                  ", which is written; pass a clone");
}

// What a norm of a sum in place writes. All have elements.
inline void check_written_in_place(const char* op, const Tensor& x, const Tensor& residual,
                                   const std::optional<Tensor>& weight) {
  check_written(op, "x", x);
  check_written(op, "residual", residual);
  check_apart(op, "x", x, "residual", residual);
  if (!weight) return;
  check_apart(op, "weight", *weight, "x", x);
  check_apart(op, "weight", *weight, "residual", residual);
}

}  // namespace hk
