// For TP_EMULATED_PEER=wrong: data that goes wrong between two devices, in copies and in kernels
// alike.
#pragma once

#include <cstddef>
#include <vector>

namespace emulated_cuda {

struct Allocation;

// Whether data between these two devices goes wrong.
bool is_faulty_pair(int device, int other);

// A copy between two such devices.
void copy_wrongly(char* to, const char* from, std::size_t bytes);

// While one lives, the allocation is what a kernel of such a device sees of it: spoilt.
class SpoiltView {
 public:
  explicit SpoiltView(Allocation& allocation);
  ~SpoiltView();
  SpoiltView(const SpoiltView&) = delete;
  SpoiltView& operator=(const SpoiltView&) = delete;

 private:
  Allocation& allocation_;
  std::vector<char> true_bytes_;
  std::vector<char> spoilt_bytes_;
};

}  // namespace emulated_cuda
