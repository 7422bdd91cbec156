// Launchers of the activation kernels. [introduced in chapter 02]
#pragma once

#include <cuda_runtime.h>

#include "common/device/activation.h"
#include "common/device/cuda/device_rows.h"

namespace tp::cuda {

// y = act(gate) * up. y may be gate or up; gate and up may be two halves of one matrix.
// Moves: 12 bytes per element.
void gated_activation(
    ConstRows gate, ConstRows up, Rows y, Extent size, Activation act, cudaStream_t stream);

// x = act(x). In place.
// Moves: 8 bytes per element.
void activate(Rows x, Extent size, Activation act, cudaStream_t stream);

}  // namespace tp::cuda
