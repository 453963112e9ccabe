// Loops over hk::Lanes, and what else the kernels of all ops share. An ISA file includes it after
// one lanes_*.h; the unnamed namespace keeps a tier's code out of the other tiers at link time.
#pragma once

#include <cstdint>

#include "hk/dtype.h"

namespace hk {
namespace {

constexpr int64_t kLanes = 16;

constexpr int64_t kLineBytes = 64;

// Into L1: into L2 alone was 7 % slower.
inline void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Calls body(column) for whole groups of lanes, then tail(column, live) for the rest.
template <typename Body, typename Tail>
inline void for_lanes(int64_t begin, int64_t end, Body body, Tail tail) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) body(c);
  if (c < end) tail(c, end - c);
}

// As for_lanes over a row of T, with touch(column) once a cache line.
template <typename T, typename Touch, typename Body, typename Tail>
inline void for_lines(int64_t cols, Touch touch, Body body, Tail tail) {
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  int64_t c = 0;
  for (; c + kLine <= cols; c += kLine) {
    touch(c);
    for (int64_t k = 0; k < kLine; k += kLanes) body(c + k);
  }
  for_lanes(c, cols, body, tail);
}

inline void fill_zero(float* to, int64_t count) {
  __builtin_memset(to, 0, static_cast<uint64_t>(count) * sizeof(float));
}

inline void add_to(float* to, const float* from, int64_t begin, int64_t end) {
  for_lanes(
      begin, end, [&](int64_t c) { store(to + c, load(to + c) + load(from + c)); },
      [&](int64_t c, int64_t live) {
        store(to + c, load(to + c, live) + load(from + c, live), live);
      });
}

template <typename From, typename To>
void convert(const From* from, To* to, int64_t begin, int64_t end) {
  for_lanes(
      begin, end, [&](int64_t c) { store(to + c, load(from + c)); },
      [&](int64_t c, int64_t live) { store(to + c, load(from + c, live), live); });
}

// In float, with zeros behind up to a whole vector.
template <typename T>
void widen_padded(const T* from, float* to, int64_t count) {
  for_lanes(
      0, count, [&](int64_t c) { store(to + c, load(from + c)); },
      [&](int64_t c, int64_t live) { store(to + c, load(from + c, live)); });
}

template <typename T>
void widen_row(const T* from, float offset, float* to, int64_t cols) {
  const Lanes shift = splat(offset);
  for_lanes(
      0, cols, [&](int64_t c) { store(to + c, load(from + c) + shift); },
      [&](int64_t c, int64_t live) { store(to + c, load(from + c, live) + shift, live); });
}

// Calls body with a null pointer of the element type.
template <typename Body>
inline void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32:
      return body(static_cast<float*>(nullptr));
    case DType::bf16:
      return body(static_cast<bf16*>(nullptr));
    case DType::f16:
      return body(static_cast<f16*>(nullptr));
  }
}

}  // namespace
}  // namespace hk
