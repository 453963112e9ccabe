// Sixteen floats in two ymm registers. Same meaning as lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "hk/dtype.h"

namespace hk {
namespace {

struct Lanes {
  __m256 low, high;
};

inline Lanes splat(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }

inline Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }

inline __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline Lanes load(const bf16* from) {
  const auto* p = reinterpret_cast<const __m128i*>(from);
  return {widen_bf16(_mm_loadu_si128(p)), widen_bf16(_mm_loadu_si128(p + 1))};
}

inline Lanes load(const f16* from) {
  const auto* p = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(p)), _mm256_cvtph_ps(_mm_loadu_si128(p + 1))};
}

// The first `live` of 16 elements; zero in the other lanes.
template <typename T>
inline Lanes load(const T* from, int64_t live) {
  T copy[16] = {};
  __builtin_memcpy(copy, from, static_cast<uint64_t>(live) * sizeof(T));
  return load(copy);
}

inline __m256i round_to_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i to_even = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, to_even), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), is_nan);
}

inline __m256i narrow_bf16(const Lanes& v) {
  const __m256i mixed = _mm256_packus_epi32(round_to_bf16(v.low), round_to_bf16(v.high));
  return _mm256_permute4x64_epi64(mixed, 0xd8);
}

inline __m256i narrow_f16(const Lanes& v) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return _mm256_set_m128i(_mm256_cvtps_ph(v.high, kNearest), _mm256_cvtps_ph(v.low, kNearest));
}

inline void store(float* to, const Lanes& v) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}

inline void store(bf16* to, const Lanes& v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow_bf16(v));
}

inline void store(f16* to, const Lanes& v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow_f16(v));
}

template <typename T>
inline void store(T* to, const Lanes& v, int64_t live) {
  T copy[16];
  store(copy, v);
  __builtin_memcpy(to, copy, static_cast<uint64_t>(live) * sizeof(T));
}

inline Lanes rounded(const Lanes& v, const float*) { return v; }

inline Lanes rounded(const Lanes& v, const bf16*) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(round_to_bf16(v.low), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(round_to_bf16(v.high), 16))};
}

inline Lanes rounded(const Lanes& v, const f16*) {
  const __m256i half = narrow_f16(v);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

// A streaming store to an address that is not a multiple of its width traps.
template <typename T>
inline bool can_stream(const T* to) {
  return reinterpret_cast<uintptr_t>(to) % 32 == 0;
}

inline void stream(float* to, const Lanes& v) {
  _mm256_stream_ps(to, v.low);
  _mm256_stream_ps(to + 8, v.high);
}

inline void stream(bf16* to, const Lanes& v) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), narrow_bf16(v));
}

inline void stream(f16* to, const Lanes& v) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), narrow_f16(v));
}

// Streaming stores are ordered by a fence only: other threads may read after this.
inline void finish_streams() { _mm_sfence(); }

inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline Lanes operator/(const Lanes& a, const Lanes& b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline Lanes max(const Lanes& a, const Lanes& b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline Lanes min(const Lanes& a, const Lanes& b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline Lanes copy_sign(const Lanes& magnitude, const Lanes& sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.low), _mm256_and_ps(bit, sign.low)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.high), _mm256_and_ps(bit, sign.high))};
}

inline __m256 power_of_two(__m256i exponent) {
  const __m256i biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

inline __m256 scale_by_power(__m256 v, __m256 exponent) {
  const __m256i whole = _mm256_cvtps_epi32(exponent);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256 first = _mm256_mul_ps(v, power_of_two(half));
  return _mm256_mul_ps(first, power_of_two(_mm256_sub_epi32(whole, half)));
}

inline Lanes scale_by_power(const Lanes& v, const Lanes& exponent) {
  return {scale_by_power(v.low, exponent.low), scale_by_power(v.high, exponent.high)};
}

inline float sum(const Lanes& v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline __m256 rotate_pairs(__m256 v) {
  const __m256 minus_even = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
  return _mm256_xor_ps(_mm256_permute_ps(v, 0xb1), minus_even);
}

// (-v1, v0, -v3, v2, ...)
inline Lanes rotate_pairs(const Lanes& v) { return {rotate_pairs(v.low), rotate_pairs(v.high)}; }

struct Mask {
  __m256 low, high;
};

struct Ints {
  __m256i low, high;
};

struct Pair {
  Lanes first, second;
};

inline Mask operator<(const Lanes& a, const Lanes& b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}

inline Mask operator==(const Ints& a, const Ints& b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.low, b.low)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.high, b.high))};
}

inline Mask operator&(const Mask& a, const Mask& b) {
  return {_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high)};
}

inline Lanes select(const Mask& mask, const Lanes& yes, const Lanes& no) {
  return {_mm256_blendv_ps(no.low, yes.low, mask.low),
          _mm256_blendv_ps(no.high, yes.high, mask.high)};
}

inline Ints select(const Mask& mask, const Ints& yes, const Ints& no) {
  return {_mm256_blendv_epi8(no.low, yes.low, _mm256_castps_si256(mask.low)),
          _mm256_blendv_epi8(no.high, yes.high, _mm256_castps_si256(mask.high))};
}

inline Ints splat_int(int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }

inline Ints load_ints(const int32_t* from) {
  const auto* p = reinterpret_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)};
}

inline void store_ints(int32_t* to, const Ints& v) {
  auto* p = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(p, v.low);
  _mm256_storeu_si256(p + 1, v.high);
}

inline Ints operator+(const Ints& a, const Ints& b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

inline Ints operator*(const Ints& a, const Ints& b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}

inline __m256 floor_fma8(__m256 a, __m256 b, __m256 c) {
  const __m256 near = _mm256_floor_ps(_mm256_fmadd_ps(a, b, c));
  const __m256 left = _mm256_fmadd_ps(a, b, _mm256_sub_ps(c, near));
  const __m256 above = _mm256_cmp_ps(left, _mm256_setzero_ps(), _CMP_LT_OQ);
  return _mm256_sub_ps(near, _mm256_and_ps(above, _mm256_set1_ps(1)));
}

inline Lanes floor_fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {floor_fma8(a.low, b.low, c.low), floor_fma8(a.high, b.high, c.high)};
}

inline Ints floor_ints(const Lanes& v) {
  return {_mm256_cvttps_epi32(_mm256_floor_ps(v.low)),
          _mm256_cvttps_epi32(_mm256_floor_ps(v.high))};
}

inline Lanes to_lanes(const Ints& v) {
  return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
}

inline Ints as_ints(const Lanes& v) {
  return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}

inline Lanes as_lanes(const Ints& v) {
  return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)};
}

// Orders the quarters 0, 2, 1, 3.
inline __m256 middle_swapped(__m256 v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

inline Pair unzip(const Lanes& a, const Lanes& b) {
  const auto places = [](const Lanes& v, auto pick) { return middle_swapped(pick(v.low, v.high)); };
  const auto even = [](__m256 low, __m256 high) { return _mm256_shuffle_ps(low, high, 0x88); };
  const auto odd = [](__m256 low, __m256 high) { return _mm256_shuffle_ps(low, high, 0xdd); };
  return {{places(a, even), places(b, even)}, {places(a, odd), places(b, odd)}};
}

inline Lanes interleaved(__m256 a, __m256 b) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}

inline Pair zip(const Lanes& a, const Lanes& b) {
  return {interleaved(a.low, b.low), interleaved(a.high, b.high)};
}

// A transpose that adds as it goes.
template <typename Part>
inline Lanes sums(Part part) {
  const auto half = [&](int i) {
    const Lanes v = part(i);
    return _mm256_add_ps(v.low, v.high);
  };
  const auto quarters = [&](int i) {  // [i | i + 4], four floats each
    const __m256 a = half(i), b = half(i + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto eighths = [&](int i) {  // as above, with i + 1 behind i: two floats each
    const __m256 a = quarters(i), b = quarters(i + 1);
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  };
  const auto eight = [&](int i) {
    const __m256 a = eighths(i), b = eighths(i + 2);
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
  };
  return {eight(0), eight(8)};
}

}  // namespace
}  // namespace hk
