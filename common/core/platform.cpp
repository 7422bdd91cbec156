#include "common/core/platform.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

Platform cpu_platform(const Options& options) {
  if (options.comm == "nccl" || options.comm == "peer")
    throw input_error(fmt::format(
        "--comm {}: connects GPUs, but the device is the CPU; use --comm threads", options.comm));
  const char* const plural = options.tp == 1 ? "" : "s";
  return {"cpu", "threads", fmt::format("cpu, {} rank{} as thread{}", options.tp, plural, plural)};
}

}  // namespace tp
