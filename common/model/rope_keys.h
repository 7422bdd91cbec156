// The RoPE of a model, from the keys of its config.json. [introduced in chapter 06]
#pragma once

#include "common/device/rope_config.h"
#include "common/model/json_object.h"

namespace tp {

// Reads rope_theta and the block of scaling parameters. Older files have the block as rope_scaling,
// with rope_theta and the name `type` beside or in it, newer ones all of it as rope_parameters, with
// the name `rope_type`; both are read alike.
// What transformers would compute, or problems: types other than default, linear, llama3 and yarn,
// keys that the type does not have (whoever wrote them meant something by them), places that
// contradict each other, and rotations of a part of each head.
RopeConfig read_rope(const JsonObject& config, std::int64_t max_position_embeddings);

}  // namespace tp
