// Which ISA tiers this machine can run, and the choice of one row of a dispatch table.
// For baseline files only: an ISA file that includes this could lend its code to the baseline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hk {

// One implementation of an op's functions. A table lists the best tier first and ends with one
// that always runs.
template <typename Functions>
struct Tier {
  const char* isa;
  bool (*usable)();
  const Functions* functions;
};

inline bool has_scalar() { return true; }

#if defined(__x86_64__)

namespace cpuid {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the processor has no such leaf.
inline Registers leaf(uint32_t number, uint32_t subleaf = 0) {
  Registers r;
  if (static_cast<uint32_t>(__get_cpuid_max(0, nullptr)) >= number) {
    __cpuid_count(number, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  }
  return r;
}

inline bool all(uint32_t value, uint32_t bits) { return (value & bits) == bits; }

// What the operating system saves on a context switch; instructions on other state trap.
inline uint32_t saved_state() {
  constexpr uint32_t kOsXsave = 1u << 27;
  if (!all(leaf(1).ecx, kOsXsave)) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace cpuid

// The flags of isa = "avx2": avx2, fma, f16c.
inline bool has_avx2() {
  constexpr uint32_t kXmmYmm = 0x06;
  constexpr uint32_t kFma = 1u << 12, kF16c = 1u << 29;  // leaf 1, ecx
  constexpr uint32_t kAvx2 = 1u << 5;                    // leaf 7, ebx
  return cpuid::all(cpuid::saved_state(), kXmmYmm) &&
         cpuid::all(cpuid::leaf(1).ecx, kFma | kF16c) && cpuid::all(cpuid::leaf(7).ebx, kAvx2);
}

// The flags of isa = "avx512": those of avx2 and avx512f, dq, bw, vl.
inline bool has_avx512() {
  constexpr uint32_t kXmmYmmOpmaskZmm = 0xe6;
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;  // leaf 7, ebx
  return has_avx2() && cpuid::all(cpuid::saved_state(), kXmmYmmOpmaskZmm) &&
         cpuid::all(cpuid::leaf(7).ebx, kF | kDq | kBw | kVl);
}

// The flags of isa = "avx512-bf16": those of avx512 and avx512bf16.
inline bool has_avx512_bf16() {
  constexpr uint32_t kBf16 = 1u << 5;  // leaf 7.1, eax
  return has_avx512() && cpuid::leaf(7).eax >= 1 && cpuid::all(cpuid::leaf(7, 1).eax, kBf16);
}

#endif  // __x86_64__

// The first usable tier, or exactly the one named by the environment variable HUBKERNELS_ISA.
// Throws std::runtime_error when that one is unknown or cannot run here.
template <typename Functions, size_t N>
const Tier<Functions>& choose_tier(const Tier<Functions> (&table)[N]) {
  const char* forced = std::getenv("HUBKERNELS_ISA");
  std::string usable;
  for (const Tier<Functions>& tier : table) {
    if (!tier.usable()) continue;
    if (forced == nullptr || *forced == '\0' || std::strcmp(forced, tier.isa) == 0) return tier;
    usable += usable.empty() ? "" : ", ";
    usable += tier.isa;
  }
  throw std::runtime_error(std::string("HUBKERNELS_ISA=") + forced +
                           ": no such tier here; this machine can run: " + usable);
}

}  // namespace hk
