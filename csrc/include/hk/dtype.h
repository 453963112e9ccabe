// Element types of a device kernel, by the names that bindings know (cpu/include/hk/dtype.h has
// them too).
#pragma once

namespace hk {

enum class DType : int { f32, bf16, f16 };

}  // namespace hk
