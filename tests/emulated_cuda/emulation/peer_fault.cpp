#include "peer_fault.h"

#include <algorithm>
#include <cstring>

#include "memory.h"
#include "settings.h"

namespace emulated_cuda {

bool is_faulty_pair(int device, int other) {
  const Settings& s = settings();
  return s.peer_fault != PeerFault::none && device != other &&
         std::minmax(device, other) == std::minmax(s.faulty_peer_a, s.faulty_peer_b);
}

void copy_wrongly(char* to, const char* from, std::size_t bytes) {
  switch (settings().peer_fault) {
    case PeerFault::unchanged:
      break;
    case PeerFault::swapped:
      std::memmove(to, from + bytes - bytes / 2, bytes / 2);
      std::memmove(to + bytes / 2, from, bytes - bytes / 2);
      break;
    default:
      std::memmove(to, from, bytes);
      to[bytes / 2] = static_cast<char>(to[bytes / 2] ^ 4);
  }
}

SpoiltView::SpoiltView(Allocation& allocation)
    : allocation_(allocation), true_bytes_(allocation.base, allocation.base + allocation.bytes) {
  char* const base = allocation.base;
  switch (settings().peer_fault) {
    case PeerFault::unchanged:
      std::memset(base, 0, allocation.bytes);
      break;
    case PeerFault::swapped:
      copy_wrongly(base, true_bytes_.data(), allocation.bytes);
      break;
    default:
      // One bit in every page: the kernel may read only the first few.
      for (std::size_t i = 1000; i < allocation.bytes; i += 4096) {
        base[i] = static_cast<char>(base[i] ^ 4);
      }
  }
  spoilt_bytes_.assign(base, base + allocation.bytes);
}

SpoiltView::~SpoiltView() {
  for (std::size_t i = 0; i < true_bytes_.size(); ++i) {
    if (allocation_.base[i] == spoilt_bytes_[i]) {  // what the kernel wrote stays
      allocation_.base[i] = true_bytes_[i];
    }
  }
}

}  // namespace emulated_cuda
