// gelu and its derivative over hk::Lanes, by the normal distribution and by two approximations. An
// ISA file includes it after one lanes_*.h; the unnamed namespace keeps a tier's code out of the
// other tiers at link time.
//
// Neither 1 + erf(x) nor 1 + tanh(x) is formed: for negative x both are small differences of large
// terms. Both have their limits at infinity, where the formulas are infinity times zero.
#pragma once

#include "hk/math.h"

namespace hk {
namespace {

// From here on the tail of the normal distribution, times x, is zero in float.
constexpr float kGeluMax = 15;

// With F the normal distribution: the tail F(t) is e^(-t^2 / 2) times a ratio, and the density is
// e^(-t^2 / 2) times a constant. t = -|x|.
struct NormalTail {
  Lanes t;
  Lanes ratio;
  Power power;
};

inline NormalTail normal_tail(const Lanes& x) {
  const Lanes t = max(splat(-kGeluMax), minus_abs(x));
  // A polynomial in (t + 3.5) / (t - 3.5), off by at most 2^-25.6 (1 + t^2 / 4): less than what
  // the rounding of t^2 costs. One degree less is off by 2^-23.
  const Lanes w = (t + splat(3.5f)) / (t - splat(3.5f));
  Lanes ratio = splat(0x1.4596c0p-13f);
  ratio = fma(ratio, w, splat(0x1.748908p-12f));
  ratio = fma(ratio, w, splat(-0x1.708d16p-10f));
  ratio = fma(ratio, w, splat(-0x1.97726ep-10f));
  ratio = fma(ratio, w, splat(0x1.387a6cp-6f));
  ratio = fma(ratio, w, splat(-0x1.f8f456p-5f));
  ratio = fma(ratio, w, splat(0x1.01c01ap-3f));
  ratio = fma(ratio, w, splat(-0x1.7f4318p-3f));
  ratio = fma(ratio, w, splat(0x1.b396fcp-4f));
  return {t, ratio, power_of_e(t * t * splat(-0.5f))};
}

// x F(x); the slope is F(x) + x F'(x).
inline WithSlope gelu(const Lanes& x) {
  constexpr float kDensity = 0.3989422804f;  // 1 / sqrt(2 pi)
  const Lanes zero = splat(0), one = splat(1);
  const NormalTail tail = normal_tail(x);
  const Power& power = tail.power;
  const Lanes weight = tail.ratio * power.fraction;
  const Lanes negative = scale_by_power(tail.t * weight, power.exponent);
  const Lanes positive = fma(tail.t, scale_by_power(weight, power.exponent), x);
  const Lanes bend = fma(tail.t, splat(kDensity), tail.ratio) * power.fraction;
  const Lanes slope = scale_by_power(bend, power.exponent);
  return {select(x < zero, negative, positive), select(x < zero, slope, one - slope)};
}

// x / (1 + e^-p), where p has the sign of x, from e^-|p|.
struct Logistic {
  Lanes x;        // where e^-p, times x, is zero in float: no further
  Lanes inverse;  // 1 / (1 + e^-|p|)
  Power power;    // e^-|p|
};

// x between -limit and limit, p(x) between -120 and 120.
inline Logistic logistic(const Lanes& x, const Lanes& p) {
  const Power power = power_of_e(minus_abs(p));
  return {x, splat(1) / (splat(1) + scale_by_power(power.fraction, power.exponent)), power};
}

// With s = 1 / (1 + e^-p): the slope is s + x s (1 - s) p'. v: x before it was limited.
inline WithSlope logistic_times(const Lanes& v, const Logistic& at, const Lanes& p_slope) {
  const Lanes product = scale_by_power(at.x * at.power.fraction, at.power.exponent);
  const Lanes e = scale_by_power(at.power.fraction, at.power.exponent);
  const Lanes s = select(v < splat(0), e, splat(1)) * at.inverse;
  const Lanes bend = at.x * p_slope * (e * at.inverse * at.inverse);
  return {select(v < splat(0), product, v) * at.inverse, s + bend};
}

inline Lanes between(const Lanes& v, float limit) {
  return min(splat(limit), max(splat(-limit), v));
}

// (1 + tanh(p / 2)) / 2 is 1 / (1 + e^-p), with p = 2 sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kGeluTanhLimit = 11;
constexpr float kGeluTanhLinear = 1.5957691216f;
constexpr float kGeluTanhCubic = 0.0713548163f;

inline WithSlope gelu_tanh(const Lanes& v) {
  const Lanes x = between(v, kGeluTanhLimit), square = x * x;
  const Lanes p = x * fma(square, splat(kGeluTanhCubic), splat(kGeluTanhLinear));
  const Lanes p_slope = fma(square, splat(3 * kGeluTanhCubic), splat(kGeluTanhLinear));
  return logistic_times(v, logistic(x, p), p_slope);
}

// p = 1.702 x.
constexpr float kQuickGeluLimit = 66;
constexpr float kQuickGeluSlope = 1.702f;

inline WithSlope quick_gelu(const Lanes& v) {
  const Lanes x = between(v, kQuickGeluLimit), slope = splat(kQuickGeluSlope);
  return logistic_times(v, logistic(x, x * slope), slope);
}

}  // namespace
}  // namespace hk
