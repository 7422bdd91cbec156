// One communication call, as it is recorded, audited and shown. [introduced in chapter 01]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/dtype.h"

namespace tp {

enum class Op : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  gather,
  broadcast,
  send,
  recv,
  barrier,
  host_barrier,  // the last three belong to a Group
  host_exchange,
  host_broadcast,
};

// "all_reduce" and so on.
std::string_view name_of(Op op);

// What a rank says about a call before any data moves. Plain bytes, so that it can be sent.
struct Call {
  std::uint64_t sequence = 0;  // 1 for the first call of a rank, counted on each rank for itself
  Op op = Op::barrier;
  DType dtype = DType::f32;
  std::int32_t peer = -1;        // root of gather and broadcast, partner of send and recv, else -1
  std::int64_t elements = 0;     // of the whole tensor for gathers and scatters, else of x
  std::array<char, 40> label{};  // for people; not audited

  void set_label(std::string_view text);
  // all_reduce of 8 f32 "layer 3 o_proj" (call 17)
  std::string to_string() const;
  // True if ranks may meet in these two calls: same sequence, op, dtype, elements and root.
  bool matches(const Call& other) const;
};

}  // namespace tp
