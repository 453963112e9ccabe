// Sixteen floats in four vectors of the baseline, by the compiler's own operators: the tier that
// runs everywhere, and the meaning of the other tiers. Each tier rounds after every operation and
// sums in the same order, so all give the same bits (NaN payloads apart).
//
// Not loops over sixteen lanes: compiled, they took 3.5 times as long, and run, up to 2 times.
#pragma once

#include <cstdint>

#include "hk/dtype.h"

namespace hk {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Bits4 = uint32_t __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Long4 = int64_t __attribute__((vector_size(32)));

// Four vectors of four: what Lanes, Ints and Mask are.
template <typename V>
struct Four {
  V a, b, c, d;
};

using Lanes = Four<Float4>;
using Ints = Four<Int4>;

// Which of 16 lanes something holds for: all bits of those.
struct Mask {
  Four<Int4> lanes;
};

struct Pair {
  Lanes first, second;
};

template <typename F, typename... V>
inline auto each(F f, const Four<V>&... v) -> Four<decltype(f(v.a...))> {
  return {f(v.a...), f(v.b...), f(v.c...), f(v.d...)};
}

inline Bits4 bits_of(Float4 v) { return __builtin_bit_cast(Bits4, v); }
inline Float4 float_of(Bits4 bits) { return __builtin_bit_cast(Float4, bits); }
inline Float4 splat4(float v) { return Float4{v, v, v, v}; }
inline Bits4 splat_bits(uint32_t v) { return Bits4{v, v, v, v}; }

template <typename V>
inline V load_as(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}

template <typename V>
inline void store_as(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof(v));
}

// One by one: all 64 bytes at once take a detour over the stack.
template <typename V, typename T>
inline Four<V> load_four(const T* from) {
  return {load_as<V>(from), load_as<V>(from + 4), load_as<V>(from + 8), load_as<V>(from + 12)};
}

template <typename V, typename T>
inline void store_four(T* to, const Four<V>& v) {
  store_as(to, v.a);
  store_as(to + 4, v.b);
  store_as(to + 8, v.c);
  store_as(to + 12, v.d);
}

// Sixteen halves from memory, each in the low half of a lane.
inline Four<Bits4> load_halves(const void* from) {
  const auto* p = static_cast<const uint16_t*>(from);
  const Bits4 x = load_as<Bits4>(p), y = load_as<Bits4>(p + 8);
  const auto low = [](Bits4 even, Bits4 odd) { return Bits4{even[0], odd[0], even[1], odd[1]}; };
  const auto high = [](Bits4 even, Bits4 odd) { return Bits4{even[2], odd[2], even[3], odd[3]}; };
  return {low(x & 0xffffu, x >> 16), high(x & 0xffffu, x >> 16), low(y & 0xffffu, y >> 16),
          high(y & 0xffffu, y >> 16)};
}

inline void store_halves(void* to, const Four<Bits4>& v) {
  auto* p = static_cast<uint16_t*>(to);
  const auto packed = [](Bits4 x, Bits4 y) {
    return Bits4{x[0], x[2], y[0], y[2]} | (Bits4{x[1], x[3], y[1], y[3]} << 16);
  };
  store_as(p, packed(v.a, v.b));
  store_as(p + 8, packed(v.c, v.d));
}

inline Float4 widen_f16(Bits4 half) {
  const Bits4 sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // Zero or subnormal: a multiple of 2^-24.
  const Float4 multiple = __builtin_convertvector(__builtin_bit_cast(Int4, magnitude), Float4);
  const Bits4 tiny = bits_of(multiple * 0x1p-24f);
  const Bits4 infinite = magnitude >= 0x7c00u ? splat_bits(112u << 23) : splat_bits(0);
  const Bits4 normal = (magnitude << 13) + (112u << 23) + infinite;
  return float_of(sign | (magnitude < 0x0400u ? tiny : normal));
}

inline Bits4 round_to_bf16(Float4 v) {
  const Bits4 bits = bits_of(v);
  const Bits4 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return v != v ? splat_bits(0x7fc0) : rounded;
}

inline Bits4 round_to_f16(Float4 v) {
  const Bits4 bits = bits_of(v);
  const Bits4 magnitude = bits & 0x7fffffffu;
  const Bits4 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: the addition rounds to a multiple of 2^-24.
  const Bits4 tiny = bits_of(float_of(magnitude) + 0.5f) - bits_of(splat4(0.5f));
  // 65520 and above round to infinity.
  Bits4 half = magnitude >= 0x477ff000u ? splat_bits(0x7c00) : normal;
  half = magnitude < 0x38800000u ? tiny : half;
  half = magnitude > 0x7f800000u ? splat_bits(0x7e00) : half;
  return half | ((bits >> 16) & 0x8000u);
}

inline Lanes splat(float v) { return {splat4(v), splat4(v), splat4(v), splat4(v)}; }

inline Lanes load(const float* from) { return load_four<Float4>(from); }

inline Lanes load(const bf16* from) {
  return each([](Bits4 half) { return float_of(half << 16); }, load_halves(from));
}

inline Lanes load(const f16* from) { return each(widen_f16, load_halves(from)); }

// The first `live` of 16 elements; zero in the other lanes.
template <typename T>
inline Lanes load(const T* from, int64_t live) {
  T copy[16] = {};
  __builtin_memcpy(copy, from, static_cast<uint64_t>(live) * sizeof(T));
  return load(copy);
}

inline void store(float* to, const Lanes& v) { store_four(to, v); }
inline void store(bf16* to, const Lanes& v) { store_halves(to, each(round_to_bf16, v)); }
inline void store(f16* to, const Lanes& v) { store_halves(to, each(round_to_f16, v)); }

template <typename T>
inline void store(T* to, const Lanes& v, int64_t live) {
  T copy[16];
  store(copy, v);
  __builtin_memcpy(to, copy, static_cast<uint64_t>(live) * sizeof(T));
}

// v as it is after a store to the type and a load.
inline Lanes rounded(const Lanes& v, const float*) { return v; }

inline Lanes rounded(const Lanes& v, const bf16*) {
  return each([](Float4 a) { return float_of(round_to_bf16(a) << 16); }, v);
}

inline Lanes rounded(const Lanes& v, const f16*) {
  return each([](Float4 a) { return widen_f16(round_to_f16(a)); }, v);
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

inline Lanes operator+(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a + b; }, x, y);
}

inline Lanes operator-(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a - b; }, x, y);
}

inline Lanes operator*(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a * b; }, x, y);
}

inline Lanes operator/(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a / b; }, x, y);
}

// a * b + c, rounded once, as processors with the other tiers do it. The product is exact in
// double. Of the sum, its error in turn tells whether double had to round: then the last bit is
// made odd (Boldo and Melquiond, 2008), with which the second rounding, to float, is that of the
// exact sum.
inline Float4 fma4(Float4 a, Float4 b, Float4 c) {
  const Double4 product = __builtin_convertvector(a, Double4) * __builtin_convertvector(b, Double4);
  const Double4 more = __builtin_convertvector(c, Double4);
  const Double4 sum = product + more;
  const Double4 part = sum - product;
  const Double4 error = (product - (sum - part)) + (more - part);  // NaN where sum is not finite
  Long4 bits = __builtin_bit_cast(Long4, sum);
  bits += error * sum < 0.0;  // rounded away from zero: one back
  bits |= ((error < 0.0) | (error > 0.0)) & 1;
  return __builtin_convertvector(__builtin_bit_cast(Double4, bits), Float4);
}

inline Lanes fma(const Lanes& x, const Lanes& y, const Lanes& z) { return each(fma4, x, y, z); }

// y where the two are equal or one is NaN.
inline Lanes max(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a > b ? a : b; }, x, y);
}

// y where the two are equal or one is NaN.
inline Lanes min(const Lanes& x, const Lanes& y) {
  return each([](Float4 a, Float4 b) { return a < b ? a : b; }, x, y);
}

// The sign bit of sign, the other bits of magnitude.
inline Lanes copy_sign(const Lanes& magnitude, const Lanes& sign) {
  const auto copied = [](Float4 a, Float4 b) {
    return float_of((bits_of(a) & 0x7fffffffu) | (bits_of(b) & 0x80000000u));
  };
  return each(copied, magnitude, sign);
}

// v * 2^exponent, rounded once where v * 2^(exponent / 2) is normal, zero, infinite or NaN.
// exponent: a whole number of at most 250 either way, or NaN where v is.
inline Lanes scale_by_power(const Lanes& v, const Lanes& exponent) {
  const auto scaled = [](Float4 a, Float4 e) {
    const Float4 shift = splat4(0x1.8p23f);
    const Bits4 whole = bits_of(e + shift) - bits_of(shift);
    const Bits4 half = __builtin_bit_cast(Bits4, __builtin_bit_cast(Int4, whole) >> 1);
    return a * float_of((half + 127u) << 23) * float_of((whole - half + 127u) << 23);
  };
  return each(scaled, v, exponent);
}

// Halves are added onto each other: lanes i and i + 8, then i and i + 4, ...
inline float sum(const Lanes& v) {
  const Float4 four = (v.a + v.c) + (v.b + v.d);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// (-v1, v0, -v3, v2, ...): each pair of lanes turned by a right angle.
inline Lanes rotate_pairs(const Lanes& v) {
  return each([](Float4 a) { return Float4{-a[1], a[0], -a[3], a[2]}; }, v);
}

// False where either is NaN.
inline Mask operator<(const Lanes& x, const Lanes& y) {
  return {each([](Float4 a, Float4 b) { return Int4(a < b); }, x, y)};
}

inline Mask operator==(const Ints& x, const Ints& y) {
  return {each([](Int4 a, Int4 b) { return Int4(a == b); }, x, y)};
}

inline Mask operator&(const Mask& x, const Mask& y) {
  return {each([](Int4 a, Int4 b) { return a & b; }, x.lanes, y.lanes)};
}

template <typename V>
inline Four<V> select(const Mask& mask, const Four<V>& yes, const Four<V>& no) {
  return each([](Int4 m, V a, V b) { return m ? a : b; }, mask.lanes, yes, no);
}

inline Ints splat_int(int32_t v) {
  const Int4 four = {v, v, v, v};
  return {four, four, four, four};
}

inline Ints load_ints(const int32_t* from) { return load_four<Int4>(from); }
inline void store_ints(int32_t* to, const Ints& v) { store_four(to, v); }

inline Ints operator+(const Ints& x, const Ints& y) {
  return each([](Int4 a, Int4 b) { return a + b; }, x, y);
}

inline Ints operator*(const Ints& x, const Ints& y) {
  return each([](Int4 a, Int4 b) { return a * b; }, x, y);
}

inline Lanes to_lanes(const Ints& v) {
  return each([](Int4 a) { return __builtin_convertvector(a, Float4); }, v);
}

// The greatest whole number that is not above, of any size.
inline Float4 floor4(Float4 v) {
  const Int4 small = (v < 0x1p23f) & (v > -0x1p23f);  // others are whole, or not finite
  const Float4 toward_zero =
      __builtin_convertvector(__builtin_convertvector(small ? v : Float4{}, Int4), Float4);
  return small ? toward_zero - (toward_zero > v ? Float4{1, 1, 1, 1} : Float4{}) : v;
}

// The greatest whole number that is not above a * b + c, which is not rounded before; c is a
// multiple of 1/2. From 2^22 on, and where it is not finite, some number that is no nearer to zero
// than that, or NaN.
inline Lanes floor_fma(const Lanes& x, const Lanes& y, const Lanes& z) {
  const auto floored = [](Float4 a, Float4 b, Float4 c) {
    const Float4 near = floor4(fma4(a, b, c));
    const Float4 left = fma4(a, b, c - near);  // below zero where the sum was rounded up to `near`
    return near - (left < 0.0f ? Float4{1, 1, 1, 1} : Float4{});
  };
  return each(floored, x, y, z);
}

// The greatest integers that are not above; magnitudes are below 2^31.
inline Ints floor_ints(const Lanes& v) {
  const auto floored = [](Float4 a) {
    const Int4 toward_zero = __builtin_convertvector(a, Int4);
    return toward_zero + Int4(a < __builtin_convertvector(toward_zero, Float4));  // true is -1
  };
  return each(floored, v);
}

// The same bits.
inline Ints as_ints(const Lanes& v) { return __builtin_bit_cast(Ints, v); }
inline Lanes as_lanes(const Ints& v) { return __builtin_bit_cast(Lanes, v); }

// Of the 32 elements of x, then y: those at even places, and those at odd places.
inline Pair unzip(const Lanes& x, const Lanes& y) {
  const auto even = [](Float4 a, Float4 b) { return Float4{a[0], a[2], b[0], b[2]}; };
  const auto odd = [](Float4 a, Float4 b) { return Float4{a[1], a[3], b[1], b[3]}; };
  return {{even(x.a, x.b), even(x.c, x.d), even(y.a, y.b), even(y.c, y.d)},
          {odd(x.a, x.b), odd(x.c, x.d), odd(y.a, y.b), odd(y.c, y.d)}};
}

// The other way: elements of x and y in turn.
inline Pair zip(const Lanes& x, const Lanes& y) {
  const auto low = [](Float4 a, Float4 b) { return Float4{a[0], b[0], a[1], b[1]}; };
  const auto high = [](Float4 a, Float4 b) { return Float4{a[2], b[2], a[3], b[3]}; };
  return {{low(x.a, y.a), high(x.a, y.a), low(x.b, y.b), high(x.b, y.b)},
          {low(x.c, y.c), high(x.c, y.c), low(x.d, y.d), high(x.d, y.d)}};
}

// Lane i is sum(part(i)), for the 16 vectors that part(0) to part(15) tell. A transpose that adds
// as it goes.
template <typename Part>
inline Lanes sums(Part part) {
  const auto quarter = [&](int i) {
    const Lanes v = part(i);
    return (v.a + v.c) + (v.b + v.d);
  };
  const auto eighths = [&](int i) {  // of part(i), then of part(i + 1): two floats each
    const Float4 a = quarter(i), b = quarter(i + 1);
    return Float4{a[0], a[1], b[0], b[1]} + Float4{a[2], a[3], b[2], b[3]};
  };
  const auto four = [&](int i) {
    const Float4 a = eighths(i), b = eighths(i + 2);
    return Float4{a[0], a[2], b[0], b[2]} + Float4{a[1], a[3], b[1], b[3]};
  };
  return {four(0), four(4), four(8), four(12)};
}

}  // namespace
}  // namespace hk
