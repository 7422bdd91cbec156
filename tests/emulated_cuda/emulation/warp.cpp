// Warp operations: the lanes of a mask bring a value each and wait; the last one to arrive computes
// all answers.
//
// Stricter than a GPU, which would often do something by chance: all lanes of the mask must make
// the same call, on the same line, with the same mask.
#include <array>

#include "block.h"
#include "report.h"
#include "settings.h"

namespace emulated_cuda {
namespace {

const char* name_of(WarpOperation operation) {
  static constexpr std::array kNames = {"__syncwarp",       "__shfl_sync",     "__shfl_up_sync",
                                        "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
                                        "__any_sync",       "__all_sync"};
  return kNames[static_cast<std::size_t>(operation)];
}

bool is_shuffle(WarpOperation operation) {
  return operation >= WarpOperation::shuffle && operation <= WarpOperation::shuffle_xor;
}

bool in_mask(unsigned mask, int lane) {
  return (mask >> lane & 1u) != 0;
}

}  // namespace

std::string describe(const LaneInput& input, CallSite site) {
  return text("%s(mask %08x) at ", name_of(input.operation), input.mask) + text(site);
}

std::uint64_t BlockRunner::warp_operation(const LaneInput& given, CallSite site) {
  require_running(name_of(given.operation), site);
  const unsigned warp_number = current_ / 32;
  const int lane = static_cast<int>(current_ % 32);
  Warp& warp = warps_[warp_number];
  LaneInput input = given;
  const auto num_threads = static_cast<unsigned>(threads_.size());
  if (input.mask == 0xffffffffu && num_threads < (warp_number + 1) * 32) {
    input.mask >>= 32 - num_threads % 32;  // the last warp of a block has only so many lanes
  }
  if (!in_mask(input.mask, lane)) {
    report("wrong warp mask", place(current_) + " calls " + describe(input, site) +
                                  text(", but the mask leaves out its own lane %d", lane));
  }
  if ((input.mask & warp.returned) != 0) {
    report("divergent warp",
           place(current_) + " calls " + describe(input, site) +
               text(", but the lanes %08x of the mask have returned", input.mask & warp.returned));
  }
  Thread& thread = threads_[current_];
  thread.input = input;
  thread.source_lane = is_shuffle(input.operation) ? source_lane(input, lane, site) : lane;

  Gathering& gathering = join_gathering(warp, input, site);
  OrderPoint* const order = gathering.order;
  const bool orders_memory = input.operation == WarpOperation::sync;  // shuffles and votes do not
  if (orders_memory) {
    order->release();
  }
  gathering.arrived |= 1u << lane;
  if (gathering.arrived == input.mask) {
    const Quiet quiet;
    const Gathering complete = gathering;
    gathering = warp.gatherings.back();
    warp.gatherings.pop_back();
    finish_gathering(warp_number * 32, complete, lane);
  } else {
    wait(State::in_warp_operation, site);
  }
  if (orders_memory) {
    order->acquire();
  }
  return thread.answer;
}

// A lane that has returned will not come any more.
void BlockRunner::leave_warp(unsigned number) {
  Warp& warp = warps_[number / 32];
  warp.returned |= 1u << number % 32;
  for (const Gathering& gathering : warp.gatherings) {
    if (in_mask(gathering.input.mask, static_cast<int>(number % 32))) {
      report("divergent warp", place(number) + " has returned, but the mask names it: " +
                                   text("the lanes %08x wait in ", gathering.arrived) +
                                   describe(gathering.input, gathering.site));
    }
  }
}

// The lane whose value a shuffle reads.
int BlockRunner::source_lane(const LaneInput& input, int lane, CallSite site) const {
  const int begin = lane & ~(input.width - 1);
  const int end = begin + input.width;
  int source = lane;
  switch (input.operation) {
    case WarpOperation::shuffle:
      source = begin + (input.argument & (input.width - 1));
      break;
    case WarpOperation::shuffle_up:
      source = lane - input.argument;
      break;
    case WarpOperation::shuffle_down:
      source = lane + input.argument;
      break;
    default:
      source = lane ^ input.argument;
      break;
  }
  const bool may_leave_downwards = input.operation == WarpOperation::shuffle_xor;
  if (source >= end || (source < begin && !may_leave_downwards)) {
    source = lane;  // beyond its segment a lane finds its own value
  }
  if (!in_mask(input.mask, source)) {
    report("wrong warp mask", place(current_) + " calls " + describe(input, site) +
                                  text(" and reads lane %d, which the mask leaves out", source));
  }
  return source;
}

BlockRunner::Gathering& BlockRunner::join_gathering(Warp& warp,
                                                    const LaneInput& input,
                                                    CallSite site) {
  for (Gathering& gathering : warp.gatherings) {
    if ((gathering.input.mask & input.mask) == 0) {
      continue;
    }
    if (gathering.input.mask != input.mask || gathering.input.operation != input.operation ||
        gathering.input.width != input.width || gathering.site.line != site.line) {
      report("divergent warp", place(current_) + " calls " + describe(input, site) +
                                   text(", while the lanes %08x wait in ", gathering.arrived) +
                                   describe(gathering.input, gathering.site));
    }
    return gathering;
  }
  const Quiet quiet;
  warp.gatherings.push_back({input, site, 0, &warp.orders[warp.operations++ % warp.orders.size()]});
  return warp.gatherings.back();
}

void BlockRunner::finish_gathering(unsigned first_thread, const Gathering& gathering, int lane) {
  const unsigned mask = gathering.input.mask;
  unsigned ballot = 0;
  for (int i = 0; i < 32; ++i) {
    if (in_mask(mask, i) && threads_[first_thread + static_cast<unsigned>(i)].input.value != 0) {
      ballot |= 1u << i;
    }
  }
  std::array<unsigned, 32> released{};
  std::size_t num_released = 0;
  for (int i = 0; i < 32; ++i) {
    if (!in_mask(mask, i)) {
      continue;
    }
    Thread& thread = threads_[first_thread + static_cast<unsigned>(i)];
    switch (gathering.input.operation) {
      case WarpOperation::sync:
        thread.answer = 0;
        break;
      case WarpOperation::ballot:
        thread.answer = ballot;
        break;
      case WarpOperation::any:
        thread.answer = ballot != 0;
        break;
      case WarpOperation::all:
        thread.answer = ballot == mask;
        break;
      default:
        thread.answer =
            threads_[first_thread + static_cast<unsigned>(thread.source_lane)].input.value;
        break;
    }
    if (i != lane) {
      thread.state = State::ready;
      released[num_released++] = first_thread + static_cast<unsigned>(i);
    }
  }
  const bool last_goes_first = settings().order == Order::reverse;
  for (std::size_t i = 0; i < num_released; ++i) {
    ready_.push_back(released[last_goes_first ? i : num_released - 1 - i]);
  }
}

}  // namespace emulated_cuda
