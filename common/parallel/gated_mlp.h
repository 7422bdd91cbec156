// The MLP of a decoder layer with one all-reduce: column-parallel in, row-parallel out.
// [introduced in chapter 02]
#pragma once

#include <string_view>

#include "common/parallel/linear.h"

namespace tp {

// y = down(act(gate(x)) * up(x)). The intermediate features are split: a rank computes its own from
// x to its addend of y, because the activation works on each feature alone.
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Shazeer 2020 (SwiGLU); article 000, "MLP".
struct GatedMlp {
  ColumnParallelLinear gate_up;  // this rank's gate rows, then its up rows: one matmul for both
  RowParallelLinear down;
  Activation act = Activation::silu;

  std::int64_t intermediate_local() const { return gate_up.out_local() / 2; }

  // This rank's addend of y, without the bias of down.
  // Shapes: x [M, hidden]; results on the way gate_up_out [M, 2 * intermediate_local] and
  //         activated [M, intermediate_local]; y [M, hidden].
  // Ranks:  each for itself; nothing is communicated.
  PartialSum partial(const RankContext& ctx,
                     ConstTensorView x,
                     TensorView gate_up_out,
                     TensorView activated,
                     TensorView y) const;
};

}  // namespace tp
