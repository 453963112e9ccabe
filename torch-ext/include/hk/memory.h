// Memory of CPU bindings: large fresh outputs and small scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hk {

// Outputs from this size on come straight from mmap: glibc returns them to the system when they
// are freed, so every call faults every page in again.
constexpr int64_t kHugePageMinBytes = int64_t{32} << 20;

inline bool huge_pages_wanted() {
  static const bool wanted = [] {
    const char* value = std::getenv("HUBKERNELS_HUGE_PAGES");
    return value == nullptr || std::strcmp(value, "0") != 0;
  }();
  return wanted;
}

// Asks for huge pages behind a fresh output before it is written. Only advice: a refusal changes
// nothing but time. HUBKERNELS_HUGE_PAGES=0 turns it off.
inline void advise_huge_pages(void* data, int64_t bytes) {
#if defined(__linux__)
  if (bytes < kHugePageMinBytes || !huge_pages_wanted()) return;
  constexpr uintptr_t kPage = 4096;
  char* begin = static_cast<char*>(data);
  char* end = begin + bytes;
  begin += -reinterpret_cast<uintptr_t>(begin) & (kPage - 1);
  end -= reinterpret_cast<uintptr_t>(end) & (kPage - 1);
  madvise(begin, static_cast<size_t>(end - begin), MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// Floats for the length of a call, at the start of a cache line.
class FloatScratch {
 public:
  explicit FloatScratch(int64_t count)
      : data_(static_cast<float*>(::operator new(count * sizeof(float), kLine))) {}
  float* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kLine); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace hk
