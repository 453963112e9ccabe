#include "my_kernel_cpu.hpp"

#include "cpu_features.hpp"

#include "my_kernel_avx512.hpp"
#include "my_kernel_scalar.hpp"

namespace my_kernel_cpu {
namespace {

struct Row {
  const char* isa;
  bool (*usable)();
  Kernel kernel;
};

constexpr Row kRows[] = {
    {"avx512", has_avx512, avx512::forward},
    {"scalar", has_baseline, scalar::forward},
};

}  // namespace

Kernel find_kernel(const std::string& isa) {
  for (const Row& row : kRows) {
    if (row.usable() && (isa.empty() || isa == row.isa)) return row.kernel;
  }
  return nullptr;
}

std::string usable_isas() {
  std::string names;
  for (const Row& row : kRows) {
    if (row.usable()) names += (names.empty() ? "" : ",") + std::string(row.isa);
  }
  return names;
}

}  // namespace my_kernel_cpu
