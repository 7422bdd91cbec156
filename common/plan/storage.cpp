#include "common/plan/storage.h"

#include <array>

#include "common/core/error.h"

namespace tp {

namespace {

constexpr std::array kFormats{
    NumberFormat{"f32", 32},      NumberFormat{"f16", 16},       NumberFormat{"bf16", 16},
    NumberFormat{"fp8", 8, true}, NumberFormat{"int8", 8, true}, NumberFormat{"int4", 4, true},
};

constexpr std::int64_t kScaleBits = 16, kZeroPointBits = 4;

std::int64_t bytes_of_bits(std::int64_t bits) {
  return (bits + 7) / 8;
}

}  // namespace

std::vector<std::string> weight_format_names() {
  std::vector<std::string> names;
  for (const NumberFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> kv_format_names() {
  std::vector<std::string> names;
  for (const NumberFormat& format : kFormats)
    if (format.bits >= 8) names.emplace_back(format.name);
  return names;
}

NumberFormat number_format(std::string_view name) {
  for (const NumberFormat& format : kFormats)
    if (format.name == name) return format;
  throw input_error("dtype " + std::string(name) + ": must be f32, f16, bf16, fp8, int8 or int4");
}

std::int64_t WeightStorage::projection_bytes(std::int64_t rows, std::int64_t columns) const {
  std::int64_t bytes = bytes_of_bits(rows * columns * format.bits);
  if (!format.quantized) return bytes;
  const std::int64_t groups = rows * (columns / group);
  bytes += bytes_of_bits(groups * kScaleBits);
  if (format.bits == 4) bytes += bytes_of_bits(groups * kZeroPointBits);
  return bytes;
}

std::int64_t WeightStorage::other_bytes(std::int64_t elements) const {
  return elements * (format.quantized ? 2 : format.bits / 8);
}

}  // namespace tp
