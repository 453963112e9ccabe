// How rows are laid on threads: values of pure functions, so that a test or a tuner can ask for
// them. None asks for the device: what depends on a shape alone gives the same bits everywhere.
#pragma once

#include <cstdint>

namespace hk {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least power of two from `least` on that is not below n.
constexpr int power_of_two(int64_t n, int least = 1) {
  int power = least;
  while (power < n) power *= 2;
  return power;
}

// Lanes of a warp, or whole warps: what a row with so many threads to do can have.
constexpr int row_threads(int64_t wanted) {
  return static_cast<int>(wanted <= kWarp ? power_of_two(wanted) : ceil_div(wanted, kWarp) * kWarp);
}

// Threads of a block that has several rows.
constexpr int kUsualThreads = 128;

// Vectors of a longer row that a thread keeps in registers.
constexpr int kRowPacks = 4;

// packs: vectors that a thread keeps in registers; 0: the row is too long, and is read twice.
struct RowLaunch {
  int threads_per_row;
  int rows_per_block;
  int packs;
};

// Of a kernel that takes row by row, for rows of so many vectors. max_threads, max_packs: what
// its registers allow. What a row costs beside its elements counts where it is short: there few
// threads take it, with several vectors each.
constexpr RowLaunch pick_row_launch(int64_t vectors, int max_threads = kMaxThreads,
                                    int max_packs = kRowPacks) {
  const int wanted = vectors < 8 ? 1 : vectors < 32 ? 2 : kRowPacks;
  const int packs = wanted < max_packs ? wanted : max_packs;
  const int threads = row_threads(ceil_div(vectors, packs));
  if (threads > max_threads) return {max_threads, 1, 0};
  return {threads, threads < kUsualThreads ? kUsualThreads / threads : 1, packs};
}

static_assert(pick_row_launch(1).rows_per_block == 128);
static_assert(pick_row_launch(16).threads_per_row == 8 && pick_row_launch(16).packs == 2);
static_assert(pick_row_launch(512).threads_per_row == 128);  // 4096 elements of 2 bytes
static_assert(pick_row_launch(640).threads_per_row == 160);  // 5120: no thread without work
static_assert(pick_row_launch(4096).packs == 4 && pick_row_launch(4097).packs == 0);

// Groups of consecutive rows, each of which a block takes, with a sum of every column. Row slots of
// a block take its rows in turn; the sums of slots and then of groups are added in their order.
struct GroupLaunch {
  int threads_per_row;
  int slots;
  int64_t rows_per_group;
  int64_t groups;
  bool in_registers;  // else a row is longer than a block has threads for
};

// Threads of a block that has several row slots.
constexpr int kSlotThreads = 256;

// Rows that a slot takes at least, so that its sums are worth their way to memory.
constexpr int64_t kSlotRows = 4;

// packs: vectors of a row that a thread has. A longer row has fewer groups, since theirs are longer
// sums; so has one of more packs, whose threads take more registers.
constexpr int64_t group_count(int threads, int packs) {
  if (threads > kSlotThreads) return 128;
  return packs > 1 ? 256 : 384;
}

constexpr GroupLaunch pick_group_launch(int64_t rows, int64_t vectors, int packs, int max_threads) {
  const int wanted = row_threads(ceil_div(vectors, packs));
  const bool in_registers = wanted <= max_threads;
  const int threads = in_registers ? wanted : max_threads;
  const int slots = threads < kSlotThreads ? kSlotThreads / threads : 1;
  const int64_t groups = group_count(threads, packs);
  const int64_t least = slots * kSlotRows;
  const int64_t even = ceil_div(ceil_div(rows, groups), slots) * slots;
  const int64_t rows_per_group = even > least ? even : least;
  return {threads, slots, rows_per_group, ceil_div(rows, rows_per_group), in_registers};
}

static_assert(pick_group_launch(4096, 512, 2, 512).groups == 256);
static_assert(pick_group_launch(131072, 16, 2, 512).slots == 32);
static_assert(pick_group_launch(131072, 16, 2, 512).groups == 256);
static_assert(pick_group_launch(4096, 1024, 2, 512).groups == 128);
static_assert(!pick_group_launch(8, 1025, 2, 512).in_registers);

}  // namespace hk
