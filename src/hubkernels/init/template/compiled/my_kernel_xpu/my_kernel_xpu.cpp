#include "my_kernel_xpu.hpp"

#include <sycl/sycl.hpp>

namespace my_kernel_xpu {

void forward(const float* x, float* y, int64_t n, void* queue) {
  if (n == 0) return;
  static_cast<sycl::queue*>(queue)->parallel_for(
      sycl::range<1>(static_cast<size_t>(n)),
      [=](sycl::id<1> i) { y[i] = x[i] < 0 ? 0 : x[i] * x[i]; });  // NaN is not below 0
}

}  // namespace my_kernel_xpu
