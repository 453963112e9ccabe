// How queries are laid on warps: values of pure functions.
//
// A row is one query of one head. Lanes of a warp are groups, each with the channels of a row; a
// warp has several rows, or all its groups have one row and share its samples.
#pragma once

#include <cstdint>

#include "hk/launch.h"

namespace hk {

constexpr int kDeformWarps = 8;
constexpr int kDeformThreads = 32 * kDeformWarps;

// Below so many rows a warp each: all the gathers of a row are in flight at once. A decoder's
// 19,200 rows take 26 us forward with eight a warp and 30 with one; backward, by additions to
// memory, 132 and 119.
constexpr int64_t kSpreadRows = 8192;
constexpr int64_t kSpreadSums = 65536;

struct DeformLaunch {
  int group;          // lanes with one row's channels
  int rows_per_warp;  // 1: all groups share it
};

// lanes: that one row's channels take, when each takes a whole vector. widest: the widest group; a
// row of more lanes takes turns. Only what is narrow by half has a kernel of its own.
constexpr DeformLaunch pick_deform_launch(int64_t lanes, int widest, int64_t rows,
                                          int64_t spread_below = kSpreadRows) {
  if (rows < spread_below) return {widest, 1};
  const int group = lanes <= widest / 2 ? widest / 2 : widest;
  return {group, group == 2 ? 16 : 8};
}

static_assert(pick_deform_launch(8, 8, 285136).rows_per_warp == 8);
static_assert(pick_deform_launch(2, 4, 499200).rows_per_warp == 16);
static_assert(pick_deform_launch(8, 8, 2400).rows_per_warp == 1);

// Queries next to each other in a map add to the same pixels: blocks have tiles of it.
constexpr int kTileSide = 8;
constexpr int kTileQueries = kTileSide * kTileSide;

HK_HOST_DEVICE constexpr int64_t tiles_of(int64_t height, int64_t width) {
  return ceil_div(width, kTileSide) * ceil_div(height, kTileSide);
}

static_assert(tiles_of(100, 134) == 13 * 17);

}  // namespace hk
