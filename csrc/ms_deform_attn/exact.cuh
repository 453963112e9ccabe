// Sums whose bits do not depend on the order of their terms: of integers, at a scale that the
// largest term decides. What is not finite is no integer, and is marked beside.
#pragma once

#include "hk/atomic.cuh"
#include "hk/convert.cuh"

namespace hk {

constexpr unsigned kMarkNan = 1, kMarkInfinity = 2, kMarkMinusInfinity = 4;
constexpr int kMarkBits = 4;
constexpr int kMarksPerWord = 32 / kMarkBits;

// For each head of each image: the largest finite gradient and weight, as the bits of a float from
// zero on, which are in the order of their numbers.
struct ExactBounds {
  unsigned grad, weight;
};

struct ExactSums {
  int64_t* sums;        // one for each element of value
  unsigned* marks;      // kMarkBits for each
  ExactBounds* bounds;  // [batch * heads]
  int terms_log2;       // of one sum, at most
};

// 2^exponent is the scale of a head: so many terms as large as any can be stay below 2^62.
__device__ inline int exact_exponent(const ExactSums& exact, int head) {
  const ExactBounds bounds = exact.bounds[head];
  const double most =
      static_cast<double>(__uint_as_float(bounds.grad)) * __uint_as_float(bounds.weight);
  if (most == 0) return 0;
  int exponent;
  frexp(most, &exponent);
  return 61 - exact.terms_log2 - exponent;
}

__device__ inline void mark(unsigned* marks, int64_t i, unsigned what) {
  atomicOr(marks + i / kMarksPerWord, what << (i % kMarksPerWord * kMarkBits));
}

__device__ inline void add_exactly(const ExactSums& exact, int64_t i, double scale, float v) {
  if (isfinite(v)) {
    add_to(exact.sums + i, __double2ll_rn(v * scale));
  } else {
    mark(exact.marks, i, isnan(v) ? kMarkNan : v > 0 ? kMarkInfinity : kMarkMinusInfinity);
  }
}

__device__ inline float exact_sum(const ExactSums& exact, int64_t i, int exponent) {
  const unsigned marks =
      exact.marks[i / kMarksPerWord] >> (i % kMarksPerWord * kMarkBits) & ((1u << kMarkBits) - 1);
  if (marks == 0) return static_cast<float>(ldexp(static_cast<double>(exact.sums[i]), -exponent));
  if (marks == kMarkInfinity) return __uint_as_float(0x7f800000u);
  if (marks == kMarkMinusInfinity) return __uint_as_float(0xff800000u);
  return __uint_as_float(0x7fc00000u);
}

}  // namespace hk
