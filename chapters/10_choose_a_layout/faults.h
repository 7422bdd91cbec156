// Mistakes in reading a topology, made on purpose.
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/topology/machine.h"

namespace tp {

std::vector<Fault> topology_faults();

// What a reader who makes this mistake takes the machine for; the machine itself without a fault.
// Errors: tp::Error (input) if the mistake would change nothing here.
Machine misread(const Machine& machine, const std::string& fault);

}  // namespace tp
