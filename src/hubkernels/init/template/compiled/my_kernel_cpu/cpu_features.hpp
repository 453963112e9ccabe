// What a file was compiled for, as data, and what this machine can run: the processor has it, and
// the operating system saves its registers. Each file has a copy of its own of all this, since the
// linker keeps one of those that files share, and that might be the one made for AVX-512.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace my_kernel_cpu {

// Words of CPUID and of XCR0: those that a machine has, or the bits that a file needs of them.
struct Features {
  uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, extended1_ecx, saved_state;
};

namespace {

constexpr bool is_one(const char* text) { return text[0] == '1' && text[1] == '\0'; }

#define TEXT_OF(words) #words
#define TEXT(macro) TEXT_OF(macro)
// The bit where the compiler defines the macro as 1; else the macro's text is its own name.
#define BIT(macro, bit) (is_one(TEXT(macro)) ? 1u << (bit) : 0u)

// What the flags of this file let the compiler use: a new flag is asked for without a word here.
constexpr Features kCompiledFor = {
    // leaf 1, ecx
    BIT(__SSE3__, 0) | BIT(__SSSE3__, 9) | BIT(__FMA__, 12) |
        BIT(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16, 13) | BIT(__SSE4_1__, 19) | BIT(__SSE4_2__, 20) |
        BIT(__MOVBE__, 22) | BIT(__POPCNT__, 23) | BIT(__XSAVE__, 26) | BIT(__AVX__, 28) |
        BIT(__F16C__, 29),
    // leaf 7, ebx
    BIT(__BMI__, 3) | BIT(__AVX2__, 5) | BIT(__BMI2__, 8) | BIT(__AVX512F__, 16) |
        BIT(__AVX512DQ__, 17) | BIT(__AVX512IFMA__, 21) | BIT(__AVX512CD__, 28) |
        BIT(__AVX512BW__, 30) | BIT(__AVX512VL__, 31),
    // leaf 7, ecx
    BIT(__AVX512VBMI__, 1) | BIT(__AVX512VBMI2__, 6) | BIT(__AVX512VNNI__, 11) |
        BIT(__AVX512BITALG__, 12) | BIT(__AVX512VPOPCNTDQ__, 14),
    // leaf 7, edx
    BIT(__AVX512FP16__, 23),
    // leaf 7.1, eax
    BIT(__AVXVNNI__, 4) | BIT(__AVX512BF16__, 5),
    // leaf 0x80000001, ecx
    BIT(__LAHF_SAHF__, 0) | BIT(__LZCNT__, 5),
    // XCR0: xmm and ymm; then opmasks and zmm
    BIT(__AVX__, 1) | BIT(__AVX__, 2) | BIT(__AVX512F__, 5) | BIT(__AVX512F__, 6) |
        BIT(__AVX512F__, 7),
};

#undef BIT
#undef TEXT
#undef TEXT_OF

#if defined(__AES__) || defined(__SHA__) || defined(__GFNI__) || defined(__VAES__) || \
    defined(__AMX_TILE__) || defined(__AMXTILE__) || defined(__AVX10_1__) || defined(__APX_F__)
#error "cpu_features.hpp does not ask for what the flags of this file switch on: add its bit"
#endif

inline Features machine_features() {
  Features found = {};
#if defined(__x86_64__)
  uint32_t a, b, c, d;  // zero is the answer of a leaf that the processor does not have
  if (__get_cpuid_count(1, 0, &a, &b, &c, &d)) found.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    found.leaf7_ebx = b;
    found.leaf7_ecx = c;
    found.leaf7_edx = d;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) found.leaf7_1_eax = a;
  }
  if (__get_cpuid_count(0x80000001u, 0, &a, &b, &c, &d)) found.extended1_ecx = c;
  if (found.leaf1_ecx & 1u << 27) {  // else XGETBV traps, and nothing is saved
    __asm__ volatile("xgetbv" : "=a"(found.saved_state), "=d"(d) : "c"(0));
  }
#endif
  return found;
}

constexpr bool can_run(const Features& machine, const Features& needs) {
  const auto all = [](uint32_t value, uint32_t bits) { return (value & bits) == bits; };
  return all(machine.leaf1_ecx, needs.leaf1_ecx) && all(machine.leaf7_ebx, needs.leaf7_ebx) &&
         all(machine.leaf7_ecx, needs.leaf7_ecx) && all(machine.leaf7_edx, needs.leaf7_edx) &&
         all(machine.leaf7_1_eax, needs.leaf7_1_eax) &&
         all(machine.extended1_ecx, needs.extended1_ecx) &&
         all(machine.saved_state, needs.saved_state);
}

}  // namespace
}  // namespace my_kernel_cpu
