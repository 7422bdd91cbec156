#include "common/model/fused_layers.h"

#include <vector>

namespace tp {

namespace {

struct Part {
  std::string_view module;
  std::int64_t rows;
};
struct Fusion {
  std::string_view module;
  std::vector<Part> parts;  // from top to bottom
};

std::vector<Fusion> fusions(const ModelConfig& c) {
  return {{".self_attn.qkv_proj.",
           {{".self_attn.q_proj.", c.q_size()},
            {".self_attn.k_proj.", c.kv_size()},
            {".self_attn.v_proj.", c.kv_size()}}},
          {".mlp.gate_up_proj.",
           {{".mlp.gate_proj.", c.intermediate_size}, {".mlp.up_proj.", c.intermediate_size}}}};
}

}  // namespace

std::optional<FusedPart> fused_part(const ModelConfig& config, std::string_view name) {
  for (const Fusion& fusion : fusions(config)) {
    std::optional<FusedPart> found;
    std::int64_t row = 0;
    for (const Part& part : fusion.parts) {
      if (const std::size_t at = name.find(part.module); at != name.npos) {
        std::string tensor(name);
        tensor.replace(at, part.module.size(), fusion.module);
        found = FusedPart{std::move(tensor), {row, row + part.rows}, 0};
      }
      row += part.rows;
    }
    if (!found) continue;
    found->fused_rows = row;
    return found;
  }
  return std::nullopt;
}

}  // namespace tp
