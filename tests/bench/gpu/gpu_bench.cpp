// usage: gpu_bench [--small] kernels|decode
//
// Exit codes as those of the chapters: 0, 2 bad input, 3 an error of the GPU, 77 no GPU.
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "common/comm/cuda/visible_gpus.h"
#include "common/core/error.h"
#include "tests/bench/gpu/bench.h"

namespace tp::bench {

void print_line(const nlohmann::ordered_json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

namespace {

void run(int argc, char** argv) {
  Settings settings;
  std::string_view what;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--small")
      settings.small = true;
    else
      what = argv[i];
  }
  if (what != "kernels" && what != "decode")
    throw input_error(fmt::format("'{}': usage: gpu_bench [--small] kernels|decode", what));
  const cuda::VisibleGpus visible = cuda::look_for_gpus();
  if (visible.gpus.empty())
    throw Error(ErrorKind::device, fmt::format("no GPU visible: {}", visible.why_none));
  print_line({{"kind", "gpu"}, {"name", visible.gpus[0].name}, {"emulated", visible.emulated}});
  what == "kernels" ? bench_kernels(settings) : bench_decode(settings);
}

int exit_code(ErrorKind kind) {
  if (kind == ErrorKind::device) return 77;
  return kind == ErrorKind::input ? 2 : 3;
}

}  // namespace

}  // namespace tp::bench

int main(int argc, char** argv) {
  try {
    tp::bench::run(argc, argv);
    return 0;
  } catch (const tp::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return tp::bench::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
