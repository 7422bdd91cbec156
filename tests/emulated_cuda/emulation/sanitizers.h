// What AddressSanitizer and ThreadSanitizer have to be told about the emulation. Without them
// nothing of this does anything.
//
// ThreadSanitizer sees a race where two contexts touch one byte and no chain of release and acquire
// leads from one to the other. Every CUDA thread and every stream is a context of its own here, and
// the only releases and acquires are those that CUDA promises: launch, barrier, end of kernel,
// event, collective. The emulation's own locks, lists and copies stay invisible (Quiet): they would
// connect threads that are not ordered on a GPU and hide real races.
#pragma once

#include <cstddef>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_ASAN 1
#endif
#endif
#if defined(EMULATED_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define EMULATED_ASAN 0
#endif

// Set by CMake: the emulation itself is not instrumented, it only calls ThreadSanitizer.
#if !defined(EMULATED_TSAN)
#define EMULATED_TSAN 0
#endif
#if EMULATED_TSAN
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
}
#endif

namespace emulated_cuda {

// While one lives, ThreadSanitizer ignores what this thread does. Not across a change of context.
class Quiet {
 public:
  Quiet() {
#if EMULATED_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
  }
  ~Quiet() {
#if EMULATED_TSAN
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

// A point in the order of memory: what a context did before release() is seen by who calls
// acquire() afterwards.
class OrderPoint {
 public:
  void release() {
#if EMULATED_TSAN
    __tsan_release(&mark_);
#endif
  }
  void acquire() {
#if EMULATED_TSAN
    __tsan_acquire(&mark_);
#endif
  }

 private:
  [[maybe_unused]] char mark_ = 0;
};

// A copy that the emulation does on behalf of the program.
inline void note_read([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if EMULATED_TSAN
  if (bytes > 0) {
    __tsan_read_range(const_cast<void*>(address), bytes);
  }
#endif
}
inline void note_write([[maybe_unused]] void* address, [[maybe_unused]] std::size_t bytes) {
#if EMULATED_TSAN
  if (bytes > 0) {
    __tsan_write_range(address, bytes);
  }
#endif
}

// One of ThreadSanitizer's contexts.
class Context {
 public:
  Context() = default;
  ~Context() {
#if EMULATED_TSAN
    if (owned_) {
      __tsan_destroy_fiber(handle_);
    }
#endif
  }
  Context(Context&& other) noexcept {
    swap(other);
  }
  Context& operator=(Context&& other) noexcept {
    swap(other);
    return *this;
  }

  // A new one. It starts out knowing what its creator knows.
  static Context create([[maybe_unused]] const char* name) {
    Context result;
#if EMULATED_TSAN
    result.handle_ = __tsan_create_fiber(0);
    result.owned_ = true;
    __tsan_set_fiber_name(result.handle_, name);
#endif
    return result;
  }
  // The running one.
  static Context current() {
    Context result;
#if EMULATED_TSAN
    result.handle_ = __tsan_get_current_fiber();
#endif
    return result;
  }
  // Goes on in this context; nothing is ordered by that.
  void enter() const {
#if EMULATED_TSAN
    __tsan_switch_to_fiber(handle_, __tsan_switch_to_fiber_no_sync);
#endif
  }

 private:
  void swap(Context& other) {
    std::swap(handle_, other.handle_);
    std::swap(owned_, other.owned_);
  }

  void* handle_ = nullptr;
  bool owned_ = false;
};

// Makes AddressSanitizer refuse, or allow, every access to these bytes.
inline void poison([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if EMULATED_ASAN
  __asan_poison_memory_region(address, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if EMULATED_ASAN
  __asan_unpoison_memory_region(address, bytes);
#endif
}

}  // namespace emulated_cuda
