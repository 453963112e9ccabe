// Elementary functions over hk::Lanes. An ISA file includes it after one lanes_*.h; the unnamed
// namespace keeps a tier's code out of the other tiers at link time.
//
// One order of operations, each rounded: every tier gives the same bits (NaN payloads apart).
// NaN gives NaN. Errors are against float64, over one float in 31: tests/toolchain/test_math.py.
#pragma once

namespace hk {
namespace {

inline Lanes minus_abs(const Lanes& v) { return copy_sign(v, splat(-1)); }

// e^v as fraction * 2^exponent, so that a factor can be multiplied in before the result underflows.
struct Power {
  Lanes fraction;  // 0.70 to 1.42
  Lanes exponent;  // a whole number
};

// v between -120 and 120, or NaN.
inline Power power_of_e(const Lanes& v) {
  // The sum has no bits behind the point left: it rounds to a whole number.
  const Lanes whole = splat(0x1.8p23f);
  const Lanes n = fma(v, splat(0x1.715476p+0f), whole) - whole;
  // ln 2 in two parts. n times the first is exact, and so is the difference.
  const Lanes r = fma(n, splat(-0x1.7f7d1cp-20f), fma(n, splat(-0x1.62e4p-1f), v));
  // (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2; with these coefficients e^r is off by 2^-27.5.
  Lanes q = splat(0x1.6a2468p-10f);
  q = fma(q, r, splat(0x1.123a2p-7f));
  q = fma(q, r, splat(0x1.5557d2p-5f));
  q = fma(q, r, splat(0x1.555492p-3f));
  q = fma(q, r, splat(0.5f));
  return {splat(1) + fma(r * r, q, r), n};
}

// A function and its derivative. Where only one is used, the compiler leaves the other out.
struct WithSlope {
  Lanes value, slope;
};

// Beyond this v * e^v is zero.
constexpr float kSiluMin = -112;

// v / (1 + e^-v) and its derivative, from e^-|v|, which cannot overflow; at most 3.5 ulp and 2^-22
// off. Both have their limits at infinity, where the formulas are infinity times zero: 0 and 0 at
// -inf, inf and 1 at inf.
// The value is max(v, -0) - |v| / (1 + e^|v|), with the sign of v where it is zero: above zero only
// its smaller part has been rounded more than once. With s = 1 / (1 + e^-v) the slope is s + v s (1
// - s).
inline WithSlope silu(const Lanes& v) {
  const Lanes zero = splat(0), one = splat(1);
  const Lanes low = max(splat(kSiluMin), minus_abs(v));
  const Power power = power_of_e(low);
  const Lanes e = scale_by_power(power.fraction, power.exponent);
  const Lanes product = scale_by_power(low * power.fraction, power.exponent);  // -|v| e^-|v|
  const Lanes d = one + e;
  const Lanes bend = product / (d * d);
  return {max(splat(-0.0f), v) + product / d, select(v < zero, e / d + bend, one / d - bend)};
}

}  // namespace
}  // namespace hk
