// Measurements on a GPU, as lines of JSON. scripts/gpu_check runs them and compares them with their
// floors.
#pragma once

#include <nlohmann/json.hpp>

namespace tp::bench {

// With `small` everything is as small as it can be and is run once: to see that it works.
struct Settings {
  bool small = false;
};

// One line per copy, kernel and matrix product:
//   {"kind":"kernel","name":"rms_norm","shape":"8192 x 4096","us":69.1,"bytes":268451840}
// `us` is the median time of one call; bytes are those that it must move, flops what it must
// compute.
void bench_kernels(const Settings& settings);

// One line per batch size and mode:
//   {"kind":"decode","mode":"captured","batch":32,"context":1024,"us":9000.0,"bytes":...}
// `us` is the median time of a decode step of a whole model, as the host sees it.
void bench_decode(const Settings& settings);

// Prints a line at once: who reads it may stop the program at any time.
void print_line(const nlohmann::ordered_json& line);

}  // namespace tp::bench
