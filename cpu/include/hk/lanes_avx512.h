// Sixteen floats in one zmm register. Same meaning as lanes_scalar.h; with -mavx512bf16 the
// rounding to bf16 is one instruction.
#pragma once

#pragma GCC diagnostic push
#if !defined(__clang__)  // GCC 12 warns about the undefined operands inside its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#include "hk/dtype.h"

namespace hk {
namespace {

struct Lanes {
  __m512 all;
};

inline __mmask16 first(int64_t live) { return static_cast<__mmask16>((1u << live) - 1); }

inline Lanes splat(float v) { return {_mm512_set1_ps(v)}; }

inline Lanes widen_bf16(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

inline Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }

inline Lanes load(const bf16* from) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline Lanes load(const f16* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}

// The first `live` of 16 elements; zero in the other lanes.
inline Lanes load(const float* from, int64_t live) {
  return {_mm512_maskz_loadu_ps(first(live), from)};
}

inline Lanes load(const bf16* from, int64_t live) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first(live), from));
}

inline Lanes load(const f16* from, int64_t live) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(live), from))};
}

inline __m256i round_to_bf16(const Lanes& v) {
  const __m512i bits = _mm512_castps_si512(v.all);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i to_even = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, to_even), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v.all, v.all, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_set1_epi32(rounded, is_nan, 0x7fc0));
}

#if defined(__AVX512BF16__)
// The instruction makes zero of a subnormal, whatever MXCSR says. The other tiers do not, so a
// vector with such a lane (or a zero) takes their way.
inline __m256i narrow_bf16(const Lanes& v) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  const __mmask16 normal = _mm512_test_epi32_mask(_mm512_castps_si512(v.all), exponent);
  if (__builtin_expect(normal != 0xffff, false)) return round_to_bf16(v);
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.all));
}
#else
inline __m256i narrow_bf16(const Lanes& v) { return round_to_bf16(v); }
#endif

inline __m256i narrow_f16(const Lanes& v) {
  return _mm512_cvtps_ph(v.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

inline void store(float* to, const Lanes& v) { _mm512_storeu_ps(to, v.all); }

inline void store(bf16* to, const Lanes& v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow_bf16(v));
}

inline void store(f16* to, const Lanes& v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow_f16(v));
}

inline void store(float* to, const Lanes& v, int64_t live) {
  _mm512_mask_storeu_ps(to, first(live), v.all);
}

inline void store(bf16* to, const Lanes& v, int64_t live) {
  _mm256_mask_storeu_epi16(to, first(live), narrow_bf16(v));
}

inline void store(f16* to, const Lanes& v, int64_t live) {
  _mm256_mask_storeu_epi16(to, first(live), narrow_f16(v));
}

inline Lanes rounded(const Lanes& v, const float*) { return v; }
inline Lanes rounded(const Lanes& v, const bf16*) { return widen_bf16(narrow_bf16(v)); }
inline Lanes rounded(const Lanes& v, const f16*) { return {_mm512_cvtph_ps(narrow_f16(v))}; }

// A streaming store to an address that is not a multiple of its width traps.
template <typename T>
inline bool can_stream(const T* to) {
  return reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

inline void stream(float* to, const Lanes& v) { _mm512_stream_ps(to, v.all); }

inline void stream(bf16* to, const Lanes& v) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), narrow_bf16(v));
}

inline void stream(f16* to, const Lanes& v) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), narrow_f16(v));
}

// Streaming stores are ordered by a fence only: other threads may read after this.
inline void finish_streams() { _mm_sfence(); }

inline Lanes operator+(const Lanes& a, const Lanes& b) { return {_mm512_add_ps(a.all, b.all)}; }
inline Lanes operator-(const Lanes& a, const Lanes& b) { return {_mm512_sub_ps(a.all, b.all)}; }
inline Lanes operator*(const Lanes& a, const Lanes& b) { return {_mm512_mul_ps(a.all, b.all)}; }

inline Lanes operator/(const Lanes& a, const Lanes& b) { return {_mm512_div_ps(a.all, b.all)}; }

inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}

inline Lanes max(const Lanes& a, const Lanes& b) { return {_mm512_max_ps(a.all, b.all)}; }
inline Lanes min(const Lanes& a, const Lanes& b) { return {_mm512_min_ps(a.all, b.all)}; }

inline Lanes copy_sign(const Lanes& magnitude, const Lanes& sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.all), _mm512_and_ps(bit, sign.all))};
}

inline Lanes scale_by_power(const Lanes& v, const Lanes& exponent) {
  return {_mm512_scalef_ps(v.all, exponent.all)};
}

inline float sum(const Lanes& v) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(v.all), _mm512_extractf32x8_ps(v.all, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// (-v1, v0, -v3, v2, ...)
inline Lanes rotate_pairs(const Lanes& v) {
  const __m512 minus_even = _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000));
  return {_mm512_xor_ps(_mm512_maskz_permute_ps(0xffff, v.all, 0xb1), minus_even)};
}

struct Mask {
  __mmask16 bits;
};

struct Ints {
  __m512i all;
};

struct Pair {
  Lanes first, second;
};

inline Mask operator<(const Lanes& a, const Lanes& b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ)};
}

inline Mask operator==(const Ints& a, const Ints& b) {
  return {_mm512_cmpeq_epi32_mask(a.all, b.all)};
}

inline Mask operator&(const Mask& a, const Mask& b) {
  return {static_cast<__mmask16>(a.bits & b.bits)};
}

inline Lanes select(const Mask& mask, const Lanes& yes, const Lanes& no) {
  return {_mm512_mask_blend_ps(mask.bits, no.all, yes.all)};
}

inline Ints select(const Mask& mask, const Ints& yes, const Ints& no) {
  return {_mm512_mask_blend_epi32(mask.bits, no.all, yes.all)};
}

inline Ints splat_int(int32_t v) { return {_mm512_set1_epi32(v)}; }

inline Ints load_ints(const int32_t* from) { return {_mm512_loadu_si512(from)}; }

inline void store_ints(int32_t* to, const Ints& v) { _mm512_storeu_si512(to, v.all); }

inline Ints operator+(const Ints& a, const Ints& b) { return {_mm512_add_epi32(a.all, b.all)}; }
inline Ints operator*(const Ints& a, const Ints& b) { return {_mm512_mullo_epi32(a.all, b.all)}; }

inline Lanes floor_fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 below = _mm512_fmadd_round_ps(a.all, b.all, c.all, kDown);
  return {_mm512_roundscale_ps(below, kDown)};
}

inline Ints floor_ints(const Lanes& v) {
  return {_mm512_cvt_roundps_epi32(v.all, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}

inline Lanes to_lanes(const Ints& v) { return {_mm512_cvtepi32_ps(v.all)}; }

inline Ints as_ints(const Lanes& v) { return {_mm512_castps_si512(v.all)}; }
inline Lanes as_lanes(const Ints& v) { return {_mm512_castsi512_ps(v.all)}; }

inline Pair unzip(const Lanes& a, const Lanes& b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {{_mm512_permutex2var_ps(a.all, even, b.all)},
          {_mm512_permutex2var_ps(a.all, odd, b.all)}};
}

inline Pair zip(const Lanes& a, const Lanes& b) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  return {{_mm512_permutex2var_ps(a.all, low, b.all)},
          {_mm512_permutex2var_ps(a.all, high, b.all)}};
}

// A transpose that adds as it goes: 45 instructions where 16 sums take 140.
template <typename Part>
inline Lanes sums(Part part) {
  const auto halves = [&](int i, int j) {  // [i | j], eight floats each
    const __m512 a = part(i).all, b = part(j).all;
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const auto quarters = [&](int i) {  // [i | i + 4 | i + 8 | i + 12], four floats each
    const __m512 a = halves(i, i + 4), b = halves(i + 8, i + 12);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  const auto eighths = [&](int i) {  // as above, with i + 1 behind i: two floats each
    const __m512 a = quarters(i), b = quarters(i + 1);
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  };
  const __m512 a = eighths(0), b = eighths(2);
  return {_mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))};
}

}  // namespace
}  // namespace hk
