#include "fault.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include <signal.h>
#include <ucontext.h>

#include "device.h"
#include "execution.h"
#include "memory.h"
#include "report.h"
#include "sanitizers.h"

namespace emulated_cuda {
namespace {

struct sigaction previous_handler;

// True if the running kernel may use this memory: now it is open, and the access can be tried
// again.
bool open_for_kernel(Allocation* allocation, const void* address) {
  Execution* const execution = Execution::current();
  if (allocation == nullptr || execution == nullptr || !execution->is_kernel() ||
      allocation->freed || !allocation->contains(address) || allocation->device == kPinnedHost ||
      !can_reach(execution->device(), allocation->device)) {
    return false;
  }
  execution->open(*allocation);
  return true;
}

std::string kind_of(const Allocation* allocation, const void* address) {
  const bool in_kernel = Execution::current() != nullptr && Execution::current()->is_kernel();
  if (in_kernel && reinterpret_cast<std::uintptr_t>(address) < 4096) {
    return "null pointer in a kernel";
  }
  if (allocation == nullptr) {
    return in_kernel ? "illegal address in a kernel (or its local variables overflow the stack)"
                     : "illegal address";
  }
  if (allocation->freed) {
    return "use after free";
  }
  if (!allocation->contains(address)) {
    return "out of bounds";
  }
  return in_kernel ? "memory of another device" : "host code touches device memory";
}

// What the processor was doing; x86-64 says in its error code whether it was a write.
std::string verb(const ucontext_t& context) {
#if defined(__x86_64__)
  return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "a write" : "a read";
#else
  return "an access";
#endif
}

void* code_address(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(context.uc_mcontext.pc);
#else
  return nullptr;
#endif
}

void on_fault(int signal, siginfo_t* info, void* raw_context) {
  const Quiet quiet;
  const auto& context = *static_cast<const ucontext_t*>(raw_context);
  Allocation* const allocation = find_allocation(info->si_addr);
  if (open_for_kernel(allocation, info->si_addr)) {
    return;
  }
  const Execution* const execution = Execution::current();
  if (allocation == nullptr &&
      execution == nullptr) {  // nothing of ours: as if this handler did not exist
    sigaction(signal, &previous_handler, nullptr);
    return;
  }
  report(kind_of(allocation, info->si_addr),
         verb(context) + text(" of address %p, ", info->si_addr) + describe_address(info->si_addr),
         execution == nullptr ? StackTrace::here() : StackTrace::at(code_address(context)));
}

#if EMULATED_ASAN
// Adds to AddressSanitizer's own report what only the emulation knows.
void on_asan_report(const char* /*report*/) {
  const void* const address = __asan_get_report_address();
  const std::string all = "emulated CUDA: the address is " + describe_address(address) + "\n" +
                          Execution::describe_current();
  std::fputs(all.c_str(), stderr);
}
#endif

// Test frameworks install a handler for each test, and take ours away with it: then it is put back.
void install() {
#if EMULATED_ASAN
  __asan_set_error_report_callback(on_asan_report);
#endif
  struct sigaction present {};
  sigaction(SIGSEGV, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_fault) {
    return;
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_handler);
}

// The handler runs on a stack of its own: the fault may be the overflow of the current one.
struct SignalStack {
  static constexpr std::size_t kBytes = 256 << 10;
  void* memory = nullptr;

  SignalStack() {
    stack_t present{};
    sigaltstack(nullptr, &present);
    if ((present.ss_flags & SS_DISABLE) == 0 && present.ss_size >= kBytes) {
      return;
    }
    memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t mine{};
    mine.ss_sp = memory;
    mine.ss_size = kBytes;
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    if (memory != nullptr) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
      munmap(memory, kBytes);
    }
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
};

}  // namespace

void watch_faults() {
  install();
  thread_local const SignalStack stack;
  static_cast<void>(stack);
}

}  // namespace emulated_cuda
