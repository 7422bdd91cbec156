// Bugs inside of kernels: barriers, warps, shared memory.
#include <functional>

#include "bug.h"
#include "bug_kernels.h"

namespace emulated_test {
namespace {

// Runs a kernel that should write `right` and compares.
bool writes(const Floats& right, const std::function<void(float*, cudaStream_t)>& launch) {
  const TestStream stream;
  const Zeros out(stream, right.size());
  launch(out.data(), stream);
  return out.values() == right;
}

bool missing_syncthreads(bool wrong) {
  const TestStream stream;
  const DeviceArray<float> in(stream, Floats(256, 1.0f));
  const Zeros out(stream, 1);
  sum_without_barrier(out.data(), in.data(), wrong, stream);
  return out.values() == Floats{256.0f};
}

bool missing_syncwarp(bool wrong) {
  const TestStream stream;
  Floats values(32);
  Floats right(32);
  for (std::size_t i = 0; i < 32; ++i) {
    values[i] = static_cast<float>(i);
    right[i] = static_cast<float>(i ^ 1u);
  }
  const DeviceArray<float> in(stream, values);
  const Zeros out(stream, 32);
  swap_without_syncwarp(out.data(), in.data(), wrong, stream);
  return out.values() == right;
}

bool uninitialised_shared(bool wrong) {
  Floats right(64);
  for (std::size_t i = 0; i < 64; ++i) {
    right[i] = static_cast<float>(i);
  }
  return writes(right, [wrong](float* out, cudaStream_t stream) {
    read_uninitialised_shared(out, wrong, stream);
  });
}

bool divergent_barrier(bool wrong) {
  return writes(Floats(64, 1.0f), [wrong](float* out, cudaStream_t stream) {
    diverge_at_barrier(out, wrong, stream);
  });
}

bool shuffle_with_returned_lanes(bool wrong) {
  return writes(Floats(32, 1.0f), [wrong](float* out, cudaStream_t stream) {
    shuffle_after_return(out, wrong, stream);
  });
}

bool shuffle_in_a_branch(bool wrong) {
  return writes(Floats(32, 1.0f), [wrong](float* out, cudaStream_t stream) {
    shuffle_in_branch(out, wrong, stream);
  });
}

bool dynamic_shared_overflow(bool wrong) {
  return writes(Floats(64, 1.0f), [wrong](float* out, cudaStream_t stream) {
    use_dynamic_shared(out, wrong ? 65 : 64, stream);
  });
}

bool static_shared_overflow(bool wrong) {
  return writes(Floats(64, 1.0f), [wrong](float* out, cudaStream_t stream) {
    use_static_shared(out, wrong ? 65 : 64, stream);
  });
}

bool dynamic_shared_over_limit(bool wrong) {
  return writes(Floats(64, 1.0f), [wrong](float* out, cudaStream_t stream) {
    ask_for_dynamic_shared(out, (wrong ? 49 : 48) << 10, stream);
  });
}

bool blocks_race(bool wrong) {
  return writes({wrong ? 3.0f : 1.0f},
                [wrong](float* out, cudaStream_t stream) { race_of_blocks(out, wrong, stream); });
}

bool misaligned_float4(bool wrong) {
  const TestStream stream;
  const Zeros in(stream, 64);
  const Zeros out(stream, 8);
  read_float4(out.data(), in.data(), wrong ? 1 : 4, stream);
  return out.values() == Floats(8, 0.0f);
}

bool stack_overflow(bool wrong) {
  return writes(Floats(32, 1.0f),
                [wrong](float* out, cudaStream_t stream) { use_stack(out, wrong, stream); });
}

}  // namespace

std::vector<Bug> kernel_bugs() {
  return {
      {"missing_syncthreads", missing_syncthreads},
      {"missing_syncwarp", missing_syncwarp},
      {"uninitialised_shared", uninitialised_shared},
      {"divergent_barrier", divergent_barrier},
      {"shuffle_with_returned_lanes", shuffle_with_returned_lanes},
      {"shuffle_in_a_branch", shuffle_in_a_branch},
      {"dynamic_shared_overflow", dynamic_shared_overflow},
      {"static_shared_overflow", static_shared_overflow},
      {"dynamic_shared_over_limit", dynamic_shared_over_limit},
      {"blocks_race", blocks_race},
      {"misaligned_float4", misaligned_float4},
      {"stack_overflow", stack_overflow},
  };
}

}  // namespace emulated_test
