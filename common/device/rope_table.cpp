#include "common/device/rope_table.h"

#include <cmath>

#include "common/device/device.h"

namespace tp {

RopeTable::RopeTable(Device& device, std::int64_t positions, std::int64_t head_dim, double theta)
    : cos(device.allocate({positions, head_dim / 2}, DType::f32, "rope")),
      sin(device.allocate({positions, head_dim / 2}, DType::f32, "rope")) {
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const auto frequency = static_cast<float>(std::pow(theta, exponent));
    for (std::int64_t p = 0; p < positions; ++p) {
      // The angle is rounded to f32, as it was when the models were trained.
      const float angle = static_cast<float>(p) * frequency;
      cos.row<float>(p)[i] = std::cos(angle);
      sin.row<float>(p)[i] = std::sin(angle);
    }
  }
}

}  // namespace tp
