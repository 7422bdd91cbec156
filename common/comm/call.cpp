#include "common/comm/call.h"

#include <algorithm>

#include <fmt/format.h>

namespace tp {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::all_reduce:
      return "all_reduce";
    case Op::all_gather:
      return "all_gather";
    case Op::reduce_scatter:
      return "reduce_scatter";
    case Op::gather:
      return "gather";
    case Op::broadcast:
      return "broadcast";
    case Op::send:
      return "send";
    case Op::recv:
      return "recv";
    case Op::barrier:
      return "barrier";
    case Op::host_barrier:
      return "host_barrier";
    case Op::host_exchange:
      return "host_exchange";
    case Op::host_broadcast:
      return "host_broadcast";
  }
  return "?";
}

void Call::set_label(std::string_view text) {
  label.fill('\0');
  text.copy(label.data(), std::min(text.size(), label.size() - 1));
}

std::string Call::to_string() const {
  std::string text(name_of(op));
  if (op >= Op::host_barrier)
    return text + fmt::format(" of {} bytes (host call {})", elements, sequence);
  if (op != Op::barrier) text += fmt::format(" of {} {}", elements, name_of(dtype));
  if (op == Op::gather || op == Op::send) text += fmt::format(" to rank {}", peer);
  if (op == Op::broadcast || op == Op::recv) text += fmt::format(" from rank {}", peer);
  return text + fmt::format(" \"{}\" (call {})", label.data(), sequence);
}

bool Call::matches(const Call& other) const {
  return sequence == other.sequence && op == other.op && dtype == other.dtype &&
         elements == other.elements && peer == other.peer;
}

}  // namespace tp
