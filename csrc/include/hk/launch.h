// How rows are laid on threads: values of pure functions, so that a test or a tuner can ask for
// them.
#pragma once

#include <cstdint>

// Functions that kernels call too.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define HK_HOST_DEVICE __host__ __device__
#else
#define HK_HOST_DEVICE
#endif

namespace hk {

constexpr int kMaxThreads = 1024;
constexpr int kUsualThreads = 128;

// Vectors of a row that a thread keeps in registers.
constexpr int kRowPacks = 4;

// in_registers: else the row is too long for them, and is read twice.
struct RowLaunch {
  int threads_per_row;
  int rows_per_block;
  bool in_registers;
};

HK_HOST_DEVICE constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// For rows of so many vectors. Up to a warp, several rows share a block.
constexpr RowLaunch pick_row_launch(int64_t vectors) {
  int threads = 8;
  while (threads < kMaxThreads && int64_t{threads} * kRowPacks < vectors) threads *= 2;
  const int rows = threads < kUsualThreads ? kUsualThreads / threads : 1;
  return {threads, rows, int64_t{threads} * kRowPacks >= vectors};
}

static_assert(pick_row_launch(1).threads_per_row == 8);
static_assert(pick_row_launch(512).threads_per_row == 128);  // 4096 elements of 2 bytes
static_assert(pick_row_launch(512).rows_per_block == 1);
static_assert(pick_row_launch(4096).in_registers && !pick_row_launch(4097).in_registers);

}  // namespace hk
