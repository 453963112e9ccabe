// Which tiers this machine can run, and the choice of one. For baseline files only: an ISA file
// that includes this could lend its code to the baseline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "hk/tier.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hk {

struct CpuidRegisters {
  uint32_t eax, ebx, ecx, edx;
};

// How a processor is asked. Tests bring processors of their own.
struct Processor {
  CpuidRegisters (*cpuid)(uint32_t leaf, uint32_t subleaf);
  uint32_t (*xgetbv)();  // XCR0; traps where the operating system does not use XSAVE
};

inline Features features_of(const Processor& cpu) {
  constexpr uint32_t kExtended = 0x80000000u, kOsXsave = 1u << 27;
  const uint32_t last = cpu.cpuid(0, 0).eax;
  const uint32_t last_extended = cpu.cpuid(kExtended, 0).eax;
  // A leaf above the last one answers with another leaf's words.
  const auto leaf = [&](uint32_t number, uint32_t subleaf) {
    const bool there = number <= (number < kExtended ? last : last_extended);
    return there ? cpu.cpuid(number, subleaf) : CpuidRegisters{};
  };
  const CpuidRegisters one = leaf(1, 0), seven = leaf(7, 0);
  const CpuidRegisters seven_one = seven.eax >= 1 ? leaf(7, 1) : CpuidRegisters{};
  Features found = {};
  found.leaf1_ecx = one.ecx;
  found.leaf7_ebx = seven.ebx;
  found.leaf7_ecx = seven.ecx;
  found.leaf7_edx = seven.edx;
  found.leaf7_1_eax = seven_one.eax;
  found.leaf7_1_edx = seven_one.edx;
  found.leaf13_1_eax = leaf(13, 1).eax;
  found.extended1_ecx = leaf(kExtended + 1, 0).ecx;
  found.saved_state = one.ecx & kOsXsave ? cpu.xgetbv() : 0;
  return found;
}

#if defined(__x86_64__)

inline Features machine_features() {
  return features_of({
      [](uint32_t leaf, uint32_t subleaf) {
        CpuidRegisters r;
        __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
        return r;
      },
      [] {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return low;
      },
  });
}

#else

inline Features machine_features() { return {}; }

#endif

inline bool has(const Features& machine, const Features& needs) {
  const auto all = [](uint32_t value, uint32_t bits) { return (value & bits) == bits; };
  return all(machine.leaf1_ecx, needs.leaf1_ecx) && all(machine.leaf7_ebx, needs.leaf7_ebx) &&
         all(machine.leaf7_ecx, needs.leaf7_ecx) && all(machine.leaf7_edx, needs.leaf7_edx) &&
         all(machine.leaf7_1_eax, needs.leaf7_1_eax) &&
         all(machine.leaf7_1_edx, needs.leaf7_1_edx) &&
         all(machine.leaf13_1_eax, needs.leaf13_1_eax) &&
         all(machine.extended1_ecx, needs.extended1_ecx) &&
         all(machine.saved_state, needs.saved_state);
}

// The first tier of a table that the machine can run, the best being first, or exactly the one
// named by the environment variable HUBKERNELS_ISA. Throws std::runtime_error when there is none.
template <typename Functions, size_t N>
const Tier<Functions>& choose_tier(const Tier<Functions>* const (&table)[N],
                                   const Features& machine = machine_features()) {
  const char* forced = std::getenv("HUBKERNELS_ISA");
  if (forced != nullptr && *forced == '\0') forced = nullptr;
  std::string usable;
  for (const Tier<Functions>* tier : table) {
    if (!has(machine, tier->needs)) continue;
    if (forced == nullptr || std::strcmp(forced, tier->isa) == 0) return *tier;
    usable += usable.empty() ? "" : ", ";
    usable += tier->isa;
  }
  if (forced == nullptr) throw std::runtime_error("this machine can run no tier of this kernel");
  throw std::runtime_error(std::string("HUBKERNELS_ISA=") + forced +
                           ": no such tier here; this machine can run: " + usable);
}

}  // namespace hk
