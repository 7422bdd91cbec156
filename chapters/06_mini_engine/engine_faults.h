// The faults that only a whole model can have.
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/model/config.h"
#include "common/model/decoder.h"
#include "common/parallel/run_ranks.h"
#include "job.h"

namespace tp {

std::vector<Fault> engine_faults();

// Errors: tp::Error (input) if the fault cannot show with this job on this many ranks.
void check_fault_applies(const std::string& fault, const Job& job, int tp_size);

// The launch, with a communicator or a group that makes the mistake.
Launch with_engine_fault(Launch launch, const std::string& fault, const Job& job);

// What the rank takes for its shard.
DecoderShard shard_with_fault(const std::string& fault,
                              const ModelConfig& config,
                              int rank,
                              int tp_size);

// Makes the mistake in the weights that a rank has loaded.
void spoil_loaded(const RankContext& ctx, const std::string& fault, Decoder& decoder);

}  // namespace tp
