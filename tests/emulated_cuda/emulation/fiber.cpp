#include "fiber.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "sanitizers.h"

namespace emulated_cuda {
namespace {

// Real threads keep their locals in registers; AddressSanitizer puts wide gaps between them.
constexpr std::size_t kStackBytes = EMULATED_ASAN ? 256 << 10 : 64 << 10;
// Wide, so that one large array cannot step over it. It costs addresses only.
constexpr std::size_t kGuardBytes = 1 << 20;

class GuardedStack {
 public:
  explicit GuardedStack(Fiber::StackLimits& limits) : limits_(&limits) {}

  boost::context::stack_context allocate() {
    const Quiet quiet;
    void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    mprotect(static_cast<char*>(memory) + kGuardBytes, kStackBytes, PROT_READ | PROT_WRITE);
    *limits_ = {static_cast<char*>(memory) + kGuardBytes, kStackBytes};
    boost::context::stack_context result;
    result.sp = static_cast<char*>(memory) + kGuardBytes + kStackBytes;  // it grows downwards
    result.size = kStackBytes;
    return result;
  }
  void deallocate(boost::context::stack_context& stack) {
    unpoison(static_cast<char*>(stack.sp) - kStackBytes, kStackBytes);
    munmap(static_cast<char*>(stack.sp) - kStackBytes - kGuardBytes, kGuardBytes + kStackBytes);
  }

 private:
  Fiber::StackLimits* limits_;
};

void leave_stack([[maybe_unused]] void** saved,
                 [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] std::size_t bytes) {
#if EMULATED_ASAN
  __sanitizer_start_switch_fiber(saved, bottom, bytes);
#endif
}
void arrive_on_stack([[maybe_unused]] void* saved,
                     [[maybe_unused]] const void** old_bottom,
                     [[maybe_unused]] std::size_t* old_bytes) {
#if EMULATED_ASAN
  __sanitizer_finish_switch_fiber(saved, old_bottom, old_bytes);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void(Fiber&)> body)
    : body_(std::move(body)),
      inside_(
          std::allocator_arg, GuardedStack(own_stack_), [this](boost::context::fiber&& outside) {
            outside_ = std::move(outside);
            arrive_on_stack(nullptr, &outer_stack_.bottom, &outer_stack_.bytes);
            body_(*this);
            leave_stack(nullptr, outer_stack_.bottom, outer_stack_.bytes);  // for ever
            return std::move(outside_);
          }) {}

Fiber::~Fiber() {
  closing_ = true;
  if (begun_) {
    resume();
  }
}

void Fiber::resume() {
  begun_ = true;
  void* saved = nullptr;
  leave_stack(&saved, own_stack_.bottom, own_stack_.bytes);
  inside_ = std::move(inside_).resume();
  arrive_on_stack(saved, nullptr, nullptr);
}

void Fiber::suspend() {
  void* saved = nullptr;
  leave_stack(&saved, outer_stack_.bottom, outer_stack_.bytes);
  outside_ = std::move(outside_).resume();
  arrive_on_stack(saved, &outer_stack_.bottom, &outer_stack_.bytes);
}

}  // namespace emulated_cuda
