#include "my_kernel_cpu.hpp"

#include "cpu_features.hpp"

#include "my_kernel_avx512.hpp"
#include "my_kernel_scalar.hpp"

namespace my_kernel_cpu {
namespace {

struct Row {
  const char* isa;
  const Features& needs;
  Kernel kernel;
};

constexpr Row kRows[] = {
    {"avx512", avx512::kNeeds, avx512::forward},
    {"scalar", scalar::kNeeds, scalar::forward},
};

bool is_usable(const Row& row) {
  static const Features machine = machine_features();
  return can_run(machine, row.needs);
}

}  // namespace

Kernel find_kernel(const std::string& isa) {
  for (const Row& row : kRows) {
    if (is_usable(row) && (isa.empty() || isa == row.isa)) return row.kernel;
  }
  return nullptr;
}

std::string usable_isas() {
  std::string names;
  for (const Row& row : kRows) {
    if (is_usable(row)) names += (names.empty() ? "" : ",") + std::string(row.isa);
  }
  return names;
}

}  // namespace my_kernel_cpu
