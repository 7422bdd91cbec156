#include "block.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "emulated/shared_memory.h"
#include "emulated/thread_index.h"
#include "report.h"
#include "settings.h"

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace emulated_cuda {
namespace {

uint3 index_of(unsigned number, const dim3& extent) {
  return {number % extent.x, number / extent.x % extent.y, number / extent.x / extent.y};
}

unsigned count(const dim3& extent) {
  return extent.x * extent.y * extent.z;
}

}  // namespace

// Not inlined: a fiber may go on in another OS thread, where this is another runner.
__attribute__((noinline)) BlockRunner& BlockRunner::of_this_thread() {
  thread_local BlockRunner runner;
  return runner;
}

// Fills the vector with 0, 1, ... in the order in which they are to begin.
void BlockRunner::order_numbers(std::vector<unsigned>& numbers) {
  std::iota(numbers.begin(), numbers.end(), 0u);
  if (settings().order == Order::reverse) {
    std::reverse(numbers.begin(), numbers.end());
  } else if (settings().order == Order::random) {
    std::mt19937 random(settings().seed + runs_++);
    std::shuffle(numbers.begin(), numbers.end(), random);
  }
}

void BlockRunner::run(const Kernel& kernel, ThreadContexts& contexts) {
  const unsigned num_threads = count(kernel.block);
  std::vector<unsigned> blocks;
  {
    const Quiet quiet;
    kernel_ = &kernel;
    threads_.resize(num_threads);
    warps_.resize((num_threads + 31) / 32);
    order_.resize(num_threads);
    order_numbers(order_);
    blocks.resize(count(kernel.grid));
    order_numbers(blocks);
    while (contexts.size() < num_threads) {
      contexts.push_back({Context::create("CUDA thread"), nullptr});
    }
  }
  host_context_ = Context::current();
  blockDim = kernel.block;
  gridDim = kernel.grid;
  begin_.release();
  for (unsigned i = 0; i < blocks.size(); ++i) {
    {
      const Quiet quiet;
      begin_block(blocks[i]);
      // Thread 0 of all blocks in one context would look like one thread, and races between blocks
      // would vanish.
      for (unsigned thread = 0; thread < num_threads; ++thread) {
        threads_[thread].context = &contexts[(thread + i) % num_threads];
      }
    }
    run_block();
    memory_.end_block();
  }
  end_.acquire();
  kernel_ = nullptr;
  blockIdx = threadIdx = {0, 0, 0};
}

void BlockRunner::begin_block(unsigned block_number) {
  blockIdx = index_of(block_number, kernel_->grid);
  memory_.begin_block(kernel_->shared_bytes);
  const auto num_threads = static_cast<unsigned>(threads_.size());
  std::fill(threads_.begin(), threads_.end(), Thread{});
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    const unsigned lanes = std::min(32u, num_threads - warp * 32);
    warps_[warp].gatherings.clear();
    warps_[warp].returned = lanes == 32 ? 0 : ~0u << lanes;
  }
  living_ = num_threads;
  in_barrier_ = 0;
  ready_.assign(order_.rbegin(), order_.rend());
}

void BlockRunner::run_block() {
  while (!ready_.empty()) {
    const unsigned number = ready_.back();
    ready_.pop_back();
    Fiber* fiber = threads_[number].fiber;
    if (fiber == nullptr) {
      fiber = &fiber_for(number);
      starting_ = number;
    } else {
      enter_thread(number);
    }
    fiber->resume();
  }
  if (living_ > 0) {
    report_deadlock();
  }
}

// Where a thread that begins can run.
Fiber& BlockRunner::fiber_for(unsigned number) {
  const Quiet quiet;
  if (EMULATED_TSAN) {
    std::unique_ptr<Fiber>& own = threads_[number].context->fiber;
    if (own == nullptr) {
      own = std::make_unique<Fiber>(fiber_body);
    }
    return *own;
  }
  if (idle_fibers_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fiber_body));
    return *fibers_.back();
  }
  Fiber& result = *idle_fibers_.back();
  idle_fibers_.pop_back();
  return result;
}

void BlockRunner::fiber_body(Fiber& self) {
  while (!self.is_closing()) {
    of_this_thread().run_threads(self);
    self.suspend();
  }
}

// Thread after thread, as long as there is one that has not begun and none that waits to go on.
void BlockRunner::run_threads(Fiber& self) {
  run_thread(starting_, self);
  while (!EMULATED_TSAN && !ready_.empty() && threads_[ready_.back()].fiber == nullptr) {
    starting_ = ready_.back();
    ready_.pop_back();
    run_thread(starting_, self);
  }
  if (!EMULATED_TSAN) {
    idle_fibers_.push_back(&self);
  }
}

void BlockRunner::run_thread(unsigned number, Fiber& fiber) {
  threads_[number].fiber = &fiber;
  enter_thread(number);
  begin_.acquire();
  kernel_->thread_body();
  end_.release();
  host_context_.enter();
  threads_[number].state = State::returned;
  leave_warp(number);
  --living_;
  if (living_ > 0 && in_barrier_ == living_) {
    release_barrier();  // threads that have returned do not count
  }
}

void BlockRunner::enter_thread(unsigned number) {
  current_ = number;
  threadIdx = index_of(number, kernel_->block);
  threads_[number].context->context.enter();
}

// Ends the turn of the running thread until somebody puts it into ready_.
void BlockRunner::wait(State state, CallSite site) {
  Thread& thread = threads_[current_];
  thread.state = state;
  thread.site = site;
  host_context_.enter();
  thread.fiber->suspend();
}

void BlockRunner::require_running(const char* function, CallSite site) const {
  if (kernel_ == nullptr) {
    report("misuse", std::string(function) + " outside of a kernel at " + text(site));
  }
}

void BlockRunner::barrier(CallSite site) {
  require_running("__syncthreads", site);
  if (in_barrier_ > 0 && barrier_site_.line != site.line) {
    report("divergent barrier", place(current_) + " reaches __syncthreads at " + text(site) +
                                    ", while others wait in that at " + text(barrier_site_));
  }
  barrier_site_ = site;
  OrderPoint& order = barrier_orders_[barrier_number_ % 2];
  order.release();
  if (++in_barrier_ == living_) {
    release_barrier();
  } else {
    wait(State::in_barrier, site);
  }
  order.acquire();
}

void BlockRunner::release_barrier() {
  const Quiet quiet;
  in_barrier_ = 0;
  ++barrier_number_;
  for (auto number = order_.rbegin(); number != order_.rend(); ++number) {
    if (threads_[*number].state == State::in_barrier) {
      threads_[*number].state = State::ready;
      ready_.push_back(*number);
    }
  }
}

std::string BlockRunner::place(unsigned thread) const {
  const uint3 index = index_of(thread, kernel_->block);
  return text("thread (%u,%u,%u)", index.x, index.y, index.z);
}

void BlockRunner::report_deadlock() const {
  std::string lines;
  unsigned returned = 0;
  for (unsigned first = 0; first < threads_.size();) {
    const Thread& thread = threads_[first];
    unsigned last = first;
    const auto alike = [&thread](const Thread& other) {
      return other.state == thread.state && other.site.line == thread.site.line &&
             other.input.mask == thread.input.mask;
    };
    while (last + 1 < threads_.size() && alike(threads_[last + 1])) {
      ++last;
    }
    if (thread.state == State::returned) {
      returned += last - first + 1;
    } else {
      const bool in_warp = thread.state == State::in_warp_operation;
      lines +=
          text("\n  threads %u to %u wait in ", first, last) +
          (in_warp ? describe(thread.input, thread.site) : "__syncthreads at " + text(thread.site));
    }
    first = last + 1;
  }
  if (returned > 0) {
    lines += text("\n  %u threads have returned", returned);
  }
  report("deadlock in a block", "no thread of the block can go on:" + lines);
}

// --- What the headers call ---

void block_barrier(CallSite site) {
  BlockRunner::of_this_thread().barrier(site);
}

std::uint64_t warp_operation(const LaneInput& input, CallSite site) {
  return BlockRunner::of_this_thread().warp_operation(input, site);
}

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  return BlockRunner::of_this_thread().memory().fixed(key, bytes, alignment);
}

uint3 thread_index() {
  return threadIdx;
}
uint3 block_index() {
  return blockIdx;
}
dim3 block_dimensions() {
  return blockDim;
}
dim3 grid_dimensions() {
  return gridDim;
}

void* dynamic_shared() {
  return BlockRunner::of_this_thread().memory().dynamic();
}

}  // namespace emulated_cuda
