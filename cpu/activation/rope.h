// Rotary embedding over hk::Lanes. An ISA file includes it after one lanes_*.h; the unnamed
// namespace keeps a tier's code out of the other tiers at link time.
#pragma once

#include "activation.h"
#include "hk/loops.h"

namespace hk {
namespace {

// The angles of so many pairs are widened and arranged once for all heads of a token: 4 KB.
constexpr int64_t kPairs = 256;

// cos and sin of pairs of one token. Halves: of first elements, and from kPairs on of second ones.
// Interleaved: in the order of elements.
struct Angles {
  float cos[2 * kPairs];
  float sin[2 * kPairs];
};

// Pairs [first, first + count) of a row of cos or sin.
template <typename T>
inline void arrange(const Rope& args, const T* row, int64_t first, int64_t count, float* to) {
  if (!args.interleaved) {
    convert(row + first, to, 0, count);
    convert(row + first + (args.once ? 0 : args.rotary_dim / 2), to + kPairs, 0, count);
  } else if (args.once) {
    float each[kPairs];
    convert(row + first, each, 0, count);
    for (int64_t i = 0; i < count; ++i) to[2 * i] = to[2 * i + 1] = each[i];
  } else {
    convert(row + 2 * first, to, 0, 2 * count);
  }
}

// Makes the transpose a rotation like any other: sin1 becomes -sin2, and sin2 becomes -sin1.
inline void transpose_sines(bool interleaved, int64_t count, float* sin) {
  const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : kPairs;
  for (int64_t i = 0; i < count * step; i += step) {
    const float first = sin[i];
    sin[i] = -sin[i + apart];
    sin[i + apart] = -first;
  }
}

// `from` and `to` begin at the first pair; second elements are `half` further.
template <typename T>
inline void rotate_halves(const Angles& angles, const T* from, T* to, int64_t half, int64_t count,
                          bool streamed) {
  const auto rotate = [&](int64_t c, auto load_at, auto store_at) {
    const Lanes first = load_at(from + c), second = load_at(from + half + c);
    const Lanes cos1 = load_at(angles.cos + c), cos2 = load_at(angles.cos + kPairs + c);
    const Lanes sin1 = load_at(angles.sin + c), sin2 = load_at(angles.sin + kPairs + c);
    store_at(to + c, first * cos1 - second * sin1);
    store_at(to + half + c, second * cos2 + first * sin2);
  };
  const auto load_all = [](const auto* p) { return load(p); };
  const auto tail = [&](int64_t c, int64_t live) {
    rotate(
        c, [=](const auto* p) { return load(p, live); },
        [=](T* p, const Lanes& v) { store(p, v, live); });
  };
  if (streamed) {
    for_lanes(
        0, count,
        [&](int64_t c) { rotate(c, load_all, [](T* p, const Lanes& v) { stream(p, v); }); }, tail);
  } else {
    for_lanes(
        0, count,
        [&](int64_t c) { rotate(c, load_all, [](T* p, const Lanes& v) { store(p, v); }); }, tail);
  }
}

// `from` and `to` begin at the first pair.
template <typename T>
inline void rotate_interleaved(const Angles& angles, const T* from, T* to, int64_t count,
                               bool streamed) {
  const auto value = [&](int64_t c, auto load_at) {
    const Lanes v = load_at(from + c);
    return v * load_at(angles.cos + c) + rotate_pairs(v) * load_at(angles.sin + c);
  };
  const auto load_all = [](const auto* p) { return load(p); };
  const auto tail = [&](int64_t c, int64_t live) {
    store(to + c, value(c, [=](const auto* p) { return load(p, live); }), live);
  };
  if (streamed) {
    for_lanes(0, 2 * count, [&](int64_t c) { stream(to + c, value(c, load_all)); }, tail);
  } else {
    for_lanes(0, 2 * count, [&](int64_t c) { store(to + c, value(c, load_all)); }, tail);
  }
}

// Pairs [first, first + count) of all heads of a token.
template <typename T>
inline void rotate_heads(const Rope& args, const RopeHeads& heads, const Angles& angles,
                         int64_t batch, int64_t token, int64_t first, int64_t count) {
  if (heads.heads == 0) return;  // there is no memory to step through
  const int64_t half = args.rotary_dim / 2;
  const T* x = static_cast<const T*>(heads.x) + batch * heads.x_batch + token * heads.x_token;
  T* y = static_cast<T*>(heads.y) + batch * heads.y_batch + token * heads.y_token;
  for (int64_t h = 0; h < heads.heads; ++h, x += heads.x_head, y += heads.y_head) {
    if (args.interleaved) {
      T* to = y + 2 * first;
      rotate_interleaved(angles, x + 2 * first, to, count, args.stream && can_stream(to));
    } else {
      T* to = y + first;
      const bool streamed = args.stream && can_stream(to) && can_stream(to + half);
      rotate_halves(angles, x + first, to, half, count, streamed);
    }
  }
}

// The elements of all heads of a token that are not rotated.
template <typename T>
inline void copy_heads(const Rope& args, const RopeHeads& heads, int64_t batch, int64_t token) {
  if (heads.heads == 0) return;
  const T* x = static_cast<const T*>(heads.x) + batch * heads.x_batch + token * heads.x_token;
  T* y = static_cast<T*>(heads.y) + batch * heads.y_batch + token * heads.y_token;
  const uint64_t bytes = static_cast<uint64_t>(args.head_dim - args.rotary_dim) * sizeof(T);
  for (int64_t h = 0; h < heads.heads; ++h, x += heads.x_head, y += heads.y_head) {
    __builtin_memcpy(y + args.rotary_dim, x + args.rotary_dim, bytes);
  }
}

template <typename T, typename Table>
void rope_tokens(const Rope& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.rotary_dim / 2;
  Angles angles;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t batch = t / args.tokens, token = t % args.tokens;
    const int64_t row = args.rows != nullptr ? args.rows[t] : token;
    const Table* cos = static_cast<const Table*>(args.cos) + batch * args.cos_batch;
    const Table* sin = static_cast<const Table*>(args.sin) + batch * args.sin_batch;
    for (int64_t first = 0; first < pairs; first += kPairs) {
      const int64_t count = smaller(kPairs, pairs - first);
      arrange(args, cos + row * args.cos_row, first, count, angles.cos);
      arrange(args, sin + row * args.sin_row, first, count, angles.sin);
      if (args.transposed) transpose_sines(args.interleaved, count, angles.sin);
      rotate_heads<T>(args, args.q, angles, batch, token, first, count);
      rotate_heads<T>(args, args.k, angles, batch, token, first, count);
    }
    if (args.head_dim > args.rotary_dim) {
      copy_heads<T>(args, args.q, batch, token);
      copy_heads<T>(args, args.k, batch, token);
    }
  }
  if (args.stream) finish_streams();
}

void rope(const Rope& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) {
    if (args.table_dtype == DType::f32) {
      rope_tokens<T, float>(args, begin, end);
    } else {
      rope_tokens<T, T>(args, begin, end);
    }
  });
}

}  // namespace
}  // namespace hk
