#include "common/parallel/gated_mlp.h"

namespace tp {

PartialSum GatedMlp::partial(const RankContext& ctx,
                             ConstTensorView x,
                             TensorView gate_up_out,
                             TensorView activated,
                             TensorView y) const {
  const std::int64_t width = intermediate_local();
  gate_up.forward(ctx, x, gate_up_out);
  ctx.device.gated_activation(gate_up_out.columns_in({0, width}),
                              gate_up_out.columns_in({width, 2 * width}), activated, act);
  return down.partial(ctx, activated, y);
}

}  // namespace tp
