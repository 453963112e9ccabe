// Element types of a CPU kernel. Plain data only: baseline and ISA files share this header, so it
// must not define a function.
#pragma once

#include <cstdint>

namespace hk {

enum class DType : int { f32, bf16, f16 };

struct bf16 {
  uint16_t bits;
};

struct f16 {
  uint16_t bits;
};

}  // namespace hk
