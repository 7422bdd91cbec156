// The threads of one block, as fibers that take turns on this OS thread.
//
// A thread runs until it has to wait for others (barrier, warp operation) or returns; then the next
// one that can run does. Those that were set free last go first, so warps drift as far apart as the
// program allows: what is missing a barrier reads memory that nobody has written yet. A fiber whose
// thread has returned takes the next thread that has not begun; a kernel without any waiting thus
// runs as a plain loop.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "block_memory.h"
#include "emulated/warp_functions.h"
#include "fiber.h"
#include "sanitizers.h"

namespace emulated_cuda {

// For ThreadSanitizer: the CUDA threads' contexts, of one stream. A context knows what it did before,
// and in one stream all of that is in order; in contexts shared by streams it would hide that an
// event is missing between them. The stack belongs to the context, or two CUDA threads that use it
// one after another would seem to race for its bytes.
struct ThreadContext {
  Context context;
  std::unique_ptr<Fiber> fiber;
};
using ThreadContexts = std::vector<ThreadContext>;

struct Kernel {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  std::function<void()> thread_body;
};

// "__shfl_sync(mask ffffffff) at rms_norm.cu:45".
std::string describe(const LaneInput& input, CallSite site);

class BlockRunner {
 public:
  // Each OS thread has its own.
  static BlockRunner& of_this_thread();

  // Runs all blocks, one after another.
  void run(const Kernel& kernel, ThreadContexts& contexts);

  // For the functions of the CUDA language, on behalf of the running thread.
  void barrier(CallSite site);
  std::uint64_t warp_operation(const LaneInput& input, CallSite site);
  BlockMemory& memory() { return memory_; }

 private:
  enum class State : std::uint8_t { ready, in_barrier, in_warp_operation, returned };

  struct Thread {
    State state = State::ready;
    Fiber* fiber = nullptr;  // null until it begins
    ThreadContext* context = nullptr;
    CallSite site{};  // of what it waits in
    LaneInput input{};
    int source_lane = 0;
    std::uint64_t answer = 0;
  };

  // A warp operation that waits for some of its lanes.
  struct Gathering {
    LaneInput input;  // of the first lane
    CallSite site;
    unsigned arrived = 0;
    OrderPoint* order = nullptr;
  };

  struct Warp {
    std::vector<Gathering> gatherings;  // more than one if their masks share no lane
    unsigned returned = 0;              // mask of lanes that have returned, or never were
    unsigned operations = 0;
    std::array<OrderPoint, 64> orders;
  };

  void order_numbers(std::vector<unsigned>& numbers);
  void begin_block(unsigned block_number);
  void run_block();
  static void fiber_body(Fiber& self);
  void run_threads(Fiber& self);
  void run_thread(unsigned number, Fiber& fiber);
  Fiber& fiber_for(unsigned number);
  void wait(State state, CallSite site);
  void enter_thread(unsigned number);
  void release_barrier();

  void require_running(const char* function, CallSite site) const;
  int source_lane(const LaneInput& input, int lane, CallSite site) const;
  Gathering& join_gathering(Warp& warp, const LaneInput& input, CallSite site);
  void leave_warp(unsigned number);
  void finish_gathering(unsigned first_thread, const Gathering& gathering, int lane);
  std::string place(unsigned thread) const;
  [[noreturn]] void report_deadlock() const;

  const Kernel* kernel_ = nullptr;
  Context host_context_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;  // of the block's threads
  std::vector<unsigned> ready_;  // the last one goes first
  unsigned current_ = 0;
  unsigned living_ = 0;
  unsigned in_barrier_ = 0;
  unsigned barrier_number_ = 0;
  CallSite barrier_site_{};
  std::array<OrderPoint, 2>
      barrier_orders_;  // in turns: a fast thread's next barrier must not order this one
  OrderPoint begin_;
  OrderPoint end_;
  BlockMemory memory_;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_fibers_;
  unsigned starting_ = 0;  // the thread with which a fiber begins
  unsigned runs_ = 0;
};

}  // namespace emulated_cuda
