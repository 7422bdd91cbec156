// In how many bytes weights and the KV cache are kept. [introduced in chapter 08]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

// How one number is kept.
struct NumberFormat {
  std::string_view name;
  int bits = 0;
  bool quantized = false;  // as weights: with a scale for each group of them
};

// f32, f16, bf16, fp8, int8 and, for weights only, int4.
std::vector<std::string> weight_format_names();
std::vector<std::string> kv_format_names();
// Errors: tp::Error (input) for another name.
NumberFormat number_format(std::string_view name);

// How the weights of a model are kept. Only projections (q, k, v, o, gate, up, down) are quantized;
// embedding, lm_head, norms and biases then keep 16 bits. Each group of `group` input features of an
// output feature has one f16 scale, with int4 a zero point of 4 bits besides.
// Source: Frantar et al. 2022 (GPTQ) and Lin et al. 2023 (AWQ), the layout of their checkpoints.
struct WeightStorage {
  NumberFormat format{"bf16", 16};
  std::int64_t group = 128;

  // Bytes of a projection [rows, columns]. Shapes: group divides columns, if quantized.
  std::int64_t projection_bytes(std::int64_t rows, std::int64_t columns) const;
  // Bytes of so many weights of anything else.
  std::int64_t other_bytes(std::int64_t elements) const;
};

}  // namespace tp
