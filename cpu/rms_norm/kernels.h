// The functions of a tier. Each ISA file includes one lanes_*.h and then this header; the unnamed
// namespace keeps a tier's code out of the other tiers at link time.
#pragma once

#include "gated.h"
#include "rows.h"

namespace hk {
namespace {

void widen_weight(DType dtype, const void* from, float offset, float* to, int64_t cols) {
  with_type(dtype,
            [&]<typename T>(T*) { widen_row(static_cast<const T*>(from), offset, to, cols); });
}

void forward(const RmsNormForward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) {
    if (args.residual == nullptr) {
      forward_rows<T>(args, begin, end);
    } else {
      add_forward_rows<T>(args, begin, end);
    }
  });
}

void gated_forward(const GatedRmsNormForward& args, float* scratch, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) {
    if (args.norm_before_gate) {
      norm_gate_rows<T>(args, begin, end);
    } else {
      gate_norm_rows<T>(args, scratch, begin, end);
    }
  });
}

void backward(const RmsNormBackward& args, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) { backward_blocks<T>(args, begin, end); });
}

void gated_backward(const GatedRmsNormBackward& args, float* scratch, int64_t begin, int64_t end) {
  with_type(args.dtype, [&]<typename T>(T*) {
    if (args.norm_before_gate) {
      gated_backward_blocks<T, true>(args, scratch, begin, end);
    } else {
      gated_backward_blocks<T, false>(args, scratch, begin, end);
    }
  });
}

void sum_blocks(const WeightSums& sums, DType dtype, void* dweight, int64_t begin, int64_t end) {
  with_type(dtype, [&]<typename T>(T*) {
    sum_pairwise(sums.partial, sums.blocks, sums.cols, static_cast<T*>(dweight), begin, end);
  });
}

constexpr RmsNormKernels kKernels = {widen_weight, forward,        gated_forward,
                                     backward,     gated_backward, sum_blocks};

}  // namespace
}  // namespace hk
