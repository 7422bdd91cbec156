#include "common/device/rope_table.h"

#include <cmath>

#include "common/device/device.h"

namespace tp {

RopeTable::RopeTable(Device& device, std::int64_t positions, std::int64_t head_dim, double theta)
    : RopeTable(device, positions, head_dim, RopeConfig{.rope_theta = theta}) {}

RopeTable::RopeTable(Device& device,
                     std::int64_t positions,
                     std::int64_t head_dim,
                     const RopeConfig& rope)
    : cos(device.allocate({positions, head_dim / 2}, DType::f32, "rope")),
      sin(device.allocate({positions, head_dim / 2}, DType::f32, "rope")) {
  const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
  Tensor cosines = Tensor::on_host(cos.shape()), sines = Tensor::on_host(sin.shape());
  const auto factor = static_cast<float>(rope.attention_factor);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    for (std::int64_t p = 0; p < positions; ++p) {
      // The angle is rounded to f32, as it was when the models were trained.
      const float angle = static_cast<float>(p) * frequencies[i];
      cosines.row<float>(p)[i] = std::cos(angle) * factor;
      sines.row<float>(p)[i] = std::sin(angle) * factor;
    }
  }
  device.write(cosines, cos);
  device.write(sines, sin);
}

}  // namespace tp
