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

// Queries next to each other in a map read the same pixels: blocks have tiles of it, each warp a
// part this wide.
constexpr int kTileWidth = 8;
constexpr int kWarpTileWidth = 4;

HK_HOST_DEVICE constexpr int tile_height(int rows_per_warp) {
  return rows_per_warp / kWarpTileWidth * (kDeformWarps / (kTileWidth / kWarpTileWidth));
}

HK_HOST_DEVICE constexpr int64_t tiles_of(int64_t height, int64_t width, int rows_per_warp) {
  return ceil_div(width, kTileWidth) * ceil_div(height, tile_height(rows_per_warp));
}

// As a block of eight rows a warp has.
constexpr int kTileRows = 8;
constexpr int kTileQueries = kTileWidth * tile_height(kTileRows);

static_assert(tile_height(4) == 4 && tile_height(8) == 8 && tile_height(16) == 16);
static_assert(tiles_of(100, 134, 8) == 13 * 17);

// Below so many rows a warp each: all the gathers of a row are in flight at once.
constexpr int64_t kSpreadRows = 65536;

struct DeformLaunch {
  int group;          // lanes with one row's channels
  int rows_per_warp;  // 1: all groups share it
  bool tiles;         // blocks have tiles of a map, else runs of queries
};

// lanes: that one row's channels take, when each takes a whole vector. widest: the widest group.
// An encoder's queries are the pixels themselves; a wrong guess is only another order.
constexpr DeformLaunch pick_deform_launch(int64_t lanes, int widest, int64_t rows,
                                          bool queries_are_pixels) {
  int group = 2;
  while (group < widest && group < lanes) group *= 2;
  if (rows < kSpreadRows) return {group, 1, false};
  const int groups = 32 / group;
  const int rows_per_warp = groups > 8 ? 16 : groups == 2 ? 4 : 8;
  return {group, rows_per_warp, queries_are_pixels};
}

static_assert(pick_deform_launch(8, 16, 285136, true).rows_per_warp == 8);
static_assert(pick_deform_launch(2, 16, 499200, false).rows_per_warp == 16);
static_assert(pick_deform_launch(8, 16, 2400, false).rows_per_warp == 1);

}  // namespace hk
