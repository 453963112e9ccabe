// To be included first: from here on a * b + c rounds twice, as it is written. Compilers would fuse
// it where the tier has an instruction for that, and tiers would differ in their last bits.
#pragma once

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif
