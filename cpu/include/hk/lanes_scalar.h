// Sixteen floats in plain C++: the tier that runs everywhere, and the meaning of the other tiers.
// Each tier rounds after every operation and sums in the same order, so all give the same bits
// (NaN payloads apart).
#pragma once

#include <cstdint>

#include "hk/dtype.h"

namespace hk {
namespace {

struct Lanes {
  float lane[16];
};

inline uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float widen(float v) { return v; }

inline float widen(bf16 v) { return float_of(uint32_t{v.bits} << 16); }

inline float widen(f16 v) {
  const uint32_t sign = uint32_t{v.bits & 0x8000u} << 16;
  const uint32_t magnitude = v.bits & 0x7fffu;
  if (magnitude < 0x0400) {  // zero or subnormal: a multiple of 2^-24
    return float_of(bits_of(static_cast<float>(magnitude) * 0x1p-24f) | sign);
  }
  const uint32_t infinite = magnitude >= 0x7c00 ? 112u << 23 : 0;
  return float_of(sign | ((magnitude << 13) + (112u << 23) + infinite));
}

inline void narrow(float v, float* to) { *to = v; }

inline void narrow(float v, bf16* to) {
  const uint32_t bits = bits_of(v);
  const uint32_t to_even = 0x7fff + ((bits >> 16) & 1);
  to->bits = v != v ? 0x7fc0 : static_cast<uint16_t>((bits + to_even) >> 16);
}

inline void narrow(float v, f16* to) {
  const uint32_t bits = bits_of(v);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN
    half = 0x7e00;
  } else if (magnitude >= 0x477ff000) {  // 65520 and above round to infinity
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // subnormal: the addition rounds to a multiple of 2^-24
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  } else {
    half = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  to->bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}

inline Lanes splat(float v) {
  Lanes r;
  for (float& lane : r.lane) lane = v;
  return r;
}

// The first `live` of 16 elements; zero in the other lanes.
template <typename T>
inline Lanes load(const T* from, int64_t live) {
  Lanes r = splat(0);
  for (int64_t i = 0; i < live; ++i) r.lane[i] = widen(from[i]);
  return r;
}

template <typename T>
inline Lanes load(const T* from) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = widen(from[i]);
  return r;
}

template <typename T>
inline void store(T* to, const Lanes& v, int64_t live) {
  for (int64_t i = 0; i < live; ++i) narrow(v.lane[i], to + i);
}

template <typename T>
inline void store(T* to, const Lanes& v) {
  for (int i = 0; i < 16; ++i) narrow(v.lane[i], to + i);
}

// v as it is after a store to T and a load.
template <typename T>
inline Lanes rounded(const Lanes& v, const T*) {
  Lanes r;
  for (int i = 0; i < 16; ++i) {
    T stored;
    narrow(v.lane[i], &stored);
    r.lane[i] = widen(stored);
  }
  return r;
}

template <typename T>
inline bool can_stream(const T*) {
  return false;
}

template <typename T>
inline void stream(T* to, const Lanes& v) {
  store(to, v);
}

inline void finish_streams() {}

inline Lanes operator+(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] + b.lane[i];
  return r;
}

inline Lanes operator-(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] - b.lane[i];
  return r;
}

inline Lanes operator*(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] * b.lane[i];
  return r;
}

inline Lanes operator/(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] / b.lane[i];
  return r;
}

// b where the two are equal or one is NaN.
inline Lanes max(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return r;
}

// b where the two are equal or one is NaN.
inline Lanes min(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return r;
}

// yes where a < b, else no: also where one of them is NaN.
inline Lanes select_less(const Lanes& a, const Lanes& b, const Lanes& yes, const Lanes& no) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i];
  return r;
}

inline Lanes abs(const Lanes& v) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = float_of(bits_of(v.lane[i]) & 0x7fffffff);
  return r;
}

// The sign bit of sign, the other bits of magnitude.
inline Lanes copy_sign(const Lanes& magnitude, const Lanes& sign) {
  Lanes r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t sign_bit = bits_of(sign.lane[i]) & 0x80000000;
    r.lane[i] = float_of((bits_of(magnitude.lane[i]) & 0x7fffffff) | sign_bit);
  }
  return r;
}

// v * 2^exponent, rounded once where v * 2^(exponent / 2) is normal, zero, infinite or NaN.
// exponent: a whole number of at most 250 either way, or NaN where v is.
inline Lanes scale_by_power(const Lanes& v, const Lanes& exponent) {
  Lanes r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t whole = bits_of(exponent.lane[i] + 0x1.8p23f) - bits_of(0x1.8p23f);
    const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
    const float first = float_of((half + 127) << 23), rest = float_of((whole - half + 127) << 23);
    r.lane[i] = v.lane[i] * first * rest;
  }
  return r;
}

// Halves are added onto each other: lanes i and i + 8, then i and i + 4, ...
inline float sum(Lanes v) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v.lane[i] += v.lane[i + half];
  }
  return v.lane[0];
}

// (-v1, v0, -v3, v2, ...): each pair of lanes turned by a right angle.
inline Lanes rotate_pairs(const Lanes& v) {
  Lanes r;
  for (int i = 0; i < 16; i += 2) {
    r.lane[i] = -v.lane[i + 1];
    r.lane[i + 1] = v.lane[i];
  }
  return r;
}

// Which of 16 lanes something holds for.
struct Mask {
  bool lane[16];
};

struct Ints {
  int32_t lane[16];
};

struct Pair {
  Lanes first, second;
};

// False where either is NaN.
inline Mask operator<(const Lanes& a, const Lanes& b) {
  Mask r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] < b.lane[i];
  return r;
}

inline Mask operator==(const Ints& a, const Ints& b) {
  Mask r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] == b.lane[i];
  return r;
}

inline Mask operator&(const Mask& a, const Mask& b) {
  Mask r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] && b.lane[i];
  return r;
}

inline Lanes select(const Mask& mask, const Lanes& yes, const Lanes& no) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = mask.lane[i] ? yes.lane[i] : no.lane[i];
  return r;
}

inline Ints select(const Mask& mask, const Ints& yes, const Ints& no) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.lane[i] = mask.lane[i] ? yes.lane[i] : no.lane[i];
  return r;
}

inline Ints splat_int(int32_t v) {
  Ints r;
  for (int32_t& lane : r.lane) lane = v;
  return r;
}

inline Ints load_ints(const int32_t* from) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.lane[i] = from[i];
  return r;
}

inline void store_ints(int32_t* to, const Ints& v) {
  for (int i = 0; i < 16; ++i) to[i] = v.lane[i];
}

inline Ints operator+(const Ints& a, const Ints& b) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] + b.lane[i];
  return r;
}

inline Ints operator*(const Ints& a, const Ints& b) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] * b.lane[i];
  return r;
}

// The greatest integers that are not above; magnitudes are below 2^31.
inline Ints floor_ints(const Lanes& v) {
  Ints r;
  for (int i = 0; i < 16; ++i) {
    const int32_t toward_zero = static_cast<int32_t>(v.lane[i]);
    r.lane[i] = toward_zero - (v.lane[i] < static_cast<float>(toward_zero) ? 1 : 0);
  }
  return r;
}

inline Lanes to_lanes(const Ints& v) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(v.lane[i]);
  return r;
}

// The same bits.
inline Ints as_ints(const Lanes& v) { return __builtin_bit_cast(Ints, v); }
inline Lanes as_lanes(const Ints& v) { return __builtin_bit_cast(Lanes, v); }

// Of the 32 elements of a, then b: those at even places, and those at odd places.
inline Pair unzip(const Lanes& a, const Lanes& b) {
  Pair r;
  for (int64_t i = 0; i < 8; ++i) {
    r.first.lane[i] = a.lane[2 * i];
    r.first.lane[i + 8] = b.lane[2 * i];
    r.second.lane[i] = a.lane[2 * i + 1];
    r.second.lane[i + 8] = b.lane[2 * i + 1];
  }
  return r;
}

// The other way: elements of a and b in turn.
inline Pair zip(const Lanes& a, const Lanes& b) {
  Pair r;
  for (int64_t i = 0; i < 8; ++i) {
    r.first.lane[2 * i] = a.lane[i];
    r.first.lane[2 * i + 1] = b.lane[i];
    r.second.lane[2 * i] = a.lane[i + 8];
    r.second.lane[2 * i + 1] = b.lane[i + 8];
  }
  return r;
}

// Lane i is sum(part(i)), for the 16 vectors that part(0) to part(15) tell.
template <typename Part>
inline Lanes sums(Part part) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.lane[i] = sum(part(i));
  return r;
}

}  // namespace
}  // namespace hk
