// What an ISA file says of itself, as data: what it was compiled for, and its functions. Baseline
// and ISA files share this header, so nothing here survives into an object as code: the processor
// is asked before anything of an ISA file runs.
#pragma once

#include <cstdint>

namespace hk {

// Words of CPUID, and what the operating system saves on a context switch (XCR0): those that a
// machine has, or the bits of them that a file needs.
struct Features {
  uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, leaf7_1_edx, leaf13_1_eax;
  uint32_t extended1_ecx;
  uint32_t saved_state;
};

// One implementation of an op's functions.
template <typename Functions>
struct Tier {
  const char* isa;
  Features needs;
  Functions functions;
};

namespace {

constexpr bool is_one(const char* text) { return text[0] == '1' && text[1] == '\0'; }

#define HK_TEXT_OF(words) #words
#define HK_TEXT(macro) HK_TEXT_OF(macro)
// The bit where the compiler defines the macro as 1; else the macro's text is its own name.
#define HK_BIT(macro, bit) (::hk::is_one(HK_TEXT(macro)) ? 1u << (bit) : 0u)

// Everything that the flags of this file let the compiler use, whatever build.toml says of it.
// Bits: the vendors' manuals. A feature that the baseline has too (SSE2) needs no question.
constexpr Features kCompiledFor = {
    // leaf 1, ecx
    HK_BIT(__SSE3__, 0) | HK_BIT(__PCLMUL__, 1) | HK_BIT(__SSSE3__, 9) | HK_BIT(__FMA__, 12) |
        HK_BIT(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16, 13) | HK_BIT(__SSE4_1__, 19) |
        HK_BIT(__SSE4_2__, 20) | HK_BIT(__CRC32__, 20) | HK_BIT(__MOVBE__, 22) |
        HK_BIT(__POPCNT__, 23) | HK_BIT(__AES__, 25) | HK_BIT(__XSAVE__, 26) | HK_BIT(__AVX__, 28) |
        HK_BIT(__F16C__, 29) | HK_BIT(__RDRND__, 30),
    // leaf 7, ebx
    HK_BIT(__FSGSBASE__, 0) | HK_BIT(__BMI__, 3) | HK_BIT(__HLE__, 4) | HK_BIT(__AVX2__, 5) |
        HK_BIT(__BMI2__, 8) | HK_BIT(__RTM__, 11) | HK_BIT(__AVX512F__, 16) |
        HK_BIT(__AVX512DQ__, 17) | HK_BIT(__RDSEED__, 18) | HK_BIT(__ADX__, 19) |
        HK_BIT(__AVX512IFMA__, 21) | HK_BIT(__CLFLUSHOPT__, 23) | HK_BIT(__CLWB__, 24) |
        HK_BIT(__AVX512PF__, 26) | HK_BIT(__AVX512ER__, 27) | HK_BIT(__AVX512CD__, 28) |
        HK_BIT(__SHA__, 29) | HK_BIT(__AVX512BW__, 30) | HK_BIT(__AVX512VL__, 31),
    // leaf 7, ecx
    HK_BIT(__PREFETCHWT1__, 0) | HK_BIT(__AVX512VBMI__, 1) | HK_BIT(__PKU__, 3) |
        HK_BIT(__PKU__, 4) | HK_BIT(__WAITPKG__, 5) | HK_BIT(__AVX512VBMI2__, 6) |
        HK_BIT(__SHSTK__, 7) | HK_BIT(__GFNI__, 8) | HK_BIT(__VAES__, 9) |
        HK_BIT(__VPCLMULQDQ__, 10) | HK_BIT(__AVX512VNNI__, 11) | HK_BIT(__AVX512BITALG__, 12) |
        HK_BIT(__AVX512VPOPCNTDQ__, 14) | HK_BIT(__RDPID__, 22) | HK_BIT(__CLDEMOTE__, 25) |
        HK_BIT(__MOVDIRI__, 27) | HK_BIT(__MOVDIR64B__, 28) | HK_BIT(__ENQCMD__, 29),
    // leaf 7, edx; older clang spells AMX without its underscore
    HK_BIT(__AVX5124VNNIW__, 2) | HK_BIT(__AVX5124FMAPS__, 3) | HK_BIT(__UINTR__, 5) |
        HK_BIT(__AVX512VP2INTERSECT__, 8) | HK_BIT(__SERIALIZE__, 14) | HK_BIT(__TSXLDTRK__, 16) |
        HK_BIT(__PCONFIG__, 18) | HK_BIT(__AMX_BF16__, 22) | HK_BIT(__AMXBF16__, 22) |
        HK_BIT(__AVX512FP16__, 23) | HK_BIT(__AMX_TILE__, 24) | HK_BIT(__AMXTILE__, 24) |
        HK_BIT(__AMX_INT8__, 25) | HK_BIT(__AMXINT8__, 25),
    // leaf 7.1, eax
    HK_BIT(__SHA512__, 0) | HK_BIT(__SM3__, 1) | HK_BIT(__SM4__, 2) | HK_BIT(__RAOINT__, 3) |
        HK_BIT(__AVXVNNI__, 4) | HK_BIT(__AVX512BF16__, 5) | HK_BIT(__CMPCCXADD__, 7) |
        HK_BIT(__AMX_FP16__, 21) | HK_BIT(__HRESET__, 22) | HK_BIT(__AVXIFMA__, 23),
    // leaf 7.1, edx
    HK_BIT(__AVXVNNIINT8__, 4) | HK_BIT(__AVXNECONVERT__, 5) | HK_BIT(__AMX_COMPLEX__, 8) |
        HK_BIT(__AVXVNNIINT16__, 10) | HK_BIT(__PREFETCHI__, 14) | HK_BIT(__USER_MSR__, 15),
    // leaf 13.1, eax
    HK_BIT(__XSAVEOPT__, 0) | HK_BIT(__XSAVEC__, 1) | HK_BIT(__XSAVES__, 3),
    // leaf 0x80000001, ecx
    HK_BIT(__LAHF_SAHF__, 0) | HK_BIT(__LZCNT__, 5) | HK_BIT(__ABM__, 5) | HK_BIT(__SSE4A__, 6) |
        HK_BIT(__PRFCHW__, 8) | HK_BIT(__XOP__, 11) | HK_BIT(__LWP__, 15) | HK_BIT(__FMA4__, 16) |
        HK_BIT(__TBM__, 21) | HK_BIT(__MWAITX__, 29),
    // XCR0: xmm and ymm; then opmasks and zmm; then tiles
    HK_BIT(__AVX__, 1) | HK_BIT(__AVX__, 2) | HK_BIT(__AVX512F__, 5) | HK_BIT(__AVX512F__, 6) |
        HK_BIT(__AVX512F__, 7) | HK_BIT(__AMX_TILE__, 17) | HK_BIT(__AMX_TILE__, 18) |
        HK_BIT(__AMXTILE__, 17) | HK_BIT(__AMXTILE__, 18),
};

#undef HK_BIT
#undef HK_TEXT
#undef HK_TEXT_OF

// What no word above tells; a file that uses it would not be held back.
#if defined(__AVX10_2__) || defined(__APX_F__) || defined(__KL__) || defined(__WIDEKL__)
#error "hk/tier.h has no question for a feature that the flags of this file switch on"
#endif

}  // namespace
}  // namespace hk
