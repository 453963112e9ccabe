// Activations over hk::Lanes. An ISA file includes it after one lanes_*.h; the unnamed namespace
// keeps a tier's code out of the other tiers at link time.
#pragma once

#include "activation.h"
#include "gelu.h"
#include "hk/loops.h"
#include "hk/math.h"

namespace hk {
namespace {

// Reading runs this far ahead of itself.
constexpr int64_t kAheadBytes = 4096;

// With their limits at infinity.
template <Activation A>
inline WithSlope formula(const Lanes& x) {
  if constexpr (A == Activation::silu) return silu(x);
  if constexpr (A == Activation::gelu) return gelu(x);
  if constexpr (A == Activation::gelu_tanh) return gelu_tanh(x);
  if constexpr (A == Activation::quick_gelu) return quick_gelu(x);
}

// Calls segment(row, column, count) for the parts of rows that elements [begin, end) are.
template <typename Segment>
inline void for_segments(int64_t begin, int64_t end, int64_t cols, Segment segment) {
  int64_t row = begin / cols, column = begin % cols;
  while (begin < end) {
    const int64_t count = smaller(cols - column, end - begin);
    segment(row, column, count);
    begin += count;
    column = 0;
    ++row;
  }
}

// Elements in front of the next cache line.
template <typename T>
inline int64_t lead_of(const T* to, int64_t count) {
  const uintptr_t bytes = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  return smaller(static_cast<int64_t>(bytes / sizeof(T)), count);
}

// Calls step(column, load, store) for all columns [0, count). Streamed, the first `lead` are
// written as the last are, and then every vector is aligned.
template <typename T, typename Touch, typename Step>
inline void for_columns(int64_t count, int64_t lead, bool streamed, Touch touch, Step step) {
  const auto load_all = [](const T* p) { return load(p); };
  const auto some = [&](int64_t c, int64_t live) {
    step(
        c, [=](const T* p) { return load(p, live); },
        [=](T* p, const Lanes& v) { store(p, v, live); });
  };
  if (!streamed) {
    return for_lines<T>(
        count, touch,
        [&](int64_t c) { step(c, load_all, [](T* p, const Lanes& v) { store(p, v); }); }, some);
  }
  for (int64_t c = 0; c < lead; c += kLanes) some(c, smaller(kLanes, lead - c));
  for_lines<T>(
      count - lead, [&](int64_t c) { touch(lead + c); },
      [&](int64_t c) { step(lead + c, load_all, [](T* p, const Lanes& v) { stream(p, v); }); },
      [&](int64_t c, int64_t live) { some(lead + c, live); });
}

template <typename T, Activation A, bool Gated>
void forward_elements(const ActivationForward& args, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = kAheadBytes / static_cast<int64_t>(sizeof(T));
  for_segments(begin, end, args.cols, [&](int64_t row, int64_t column, int64_t count) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride + column;
    const T* up = Gated ? static_cast<const T*>(args.up) + row * args.up_stride + column : x;
    T* y = static_cast<T*>(args.y) + row * args.cols + column;
    const int64_t lead = lead_of(y, count);
    const auto touch = [&](int64_t c) {
      const int64_t later = smaller(c + kAhead, count - 1);
      prefetch(x + later);
      if constexpr (Gated) prefetch(up + later);
    };
    for_columns<T>(count, lead, args.stream && can_stream(y + lead), touch,
                   [&](int64_t c, auto load_at, auto store_at) {
                     Lanes value = formula<A>(load_at(x + c)).value;
                     if constexpr (Gated) value = value * load_at(up + c);
                     store_at(y + c, value);
                   });
  });
  if (args.stream) finish_streams();
}

template <typename T, Activation A, bool Gated>
void backward_elements(const ActivationBackward& args, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = kAheadBytes / static_cast<int64_t>(sizeof(T));
  for_segments(begin, end, args.cols, [&](int64_t row, int64_t column, int64_t count) {
    const T* grad = static_cast<const T*>(args.grad) + row * args.grad_stride + column;
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride + column;
    const T* up = Gated ? static_cast<const T*>(args.up) + row * args.up_stride + column : x;
    const auto at = [&](void* to, int64_t stride) {
      return to == nullptr ? nullptr : static_cast<T*>(to) + row * stride + column;
    };
    T* dx = at(args.dx, args.dx_stride);
    T* dup = at(args.dup, args.dup_stride);
    const T* led = dx != nullptr ? dx : dup;
    const int64_t lead = lead_of(led, count);
    const bool streamed = args.stream && can_stream(led + lead) &&
                          (dx == nullptr || dup == nullptr || can_stream(dup + lead));
    const auto touch = [&](int64_t c) {
      const int64_t later = smaller(c + kAhead, count - 1);
      prefetch(grad + later);
      prefetch(x + later);
      if constexpr (Gated) prefetch(up + later);
    };
    for_columns<T>(count, lead, streamed, touch, [&](int64_t c, auto load_at, auto store_at) {
      const WithSlope at_x = formula<A>(load_at(x + c));
      const Lanes g = load_at(grad + c);
      if constexpr (Gated) {
        if (dx != nullptr) store_at(dx + c, g * load_at(up + c) * at_x.slope);
        if (dup != nullptr) store_at(dup + c, g * at_x.value);
      } else {
        store_at(dx + c, g * at_x.slope);
      }
    });
  });
  if (args.stream) finish_streams();
}

// Calls body with the types of the arguments as template arguments.
template <typename Args, typename Body>
inline void with_formula(const Args& args, Body body) {
  with_type(args.dtype, [&]<typename T>(T*) {
    const auto gated = [&]<Activation A>() {
      args.up != nullptr ? body.template operator()<T, A, true>()
                         : body.template operator()<T, A, false>();
    };
    switch (args.activation) {
      case Activation::silu:
        return gated.template operator()<Activation::silu>();
      case Activation::gelu:
        return gated.template operator()<Activation::gelu>();
      case Activation::gelu_tanh:
        return gated.template operator()<Activation::gelu_tanh>();
      case Activation::quick_gelu:
        return gated.template operator()<Activation::quick_gelu>();
    }
  });
}

void activation_forward(const ActivationForward& args, int64_t begin, int64_t end) {
  with_formula(args, [&]<typename T, Activation A, bool Gated>() {
    forward_elements<T, A, Gated>(args, begin, end);
  });
}

void activation_backward(const ActivationBackward& args, int64_t begin, int64_t end) {
  with_formula(args, [&]<typename T, Activation A, bool Gated>() {
    backward_elements<T, A, Gated>(args, begin, end);
  });
}

}  // namespace
}  // namespace hk
