#include "tests/fuzz/allocation_limit.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include <malloc.h>

namespace {

// Of one thread: the readers have no others.
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
std::size_t live_bytes = 0, peak_live_bytes = 0, limit_bytes = kNoLimit;

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  live_bytes += ::malloc_usable_size(memory);
  peak_live_bytes = std::max(peak_live_bytes, live_bytes);
  return memory;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (limit_bytes != kNoLimit && (size > limit_bytes || live_bytes > limit_bytes - size)) {
    const std::size_t limit = std::exchange(limit_bytes, kNoLimit);  // the message allocates, too
    std::fprintf(stderr, "allocation limit: %zu bytes asked for; %zu are in use, of at most %zu\n",
                 size, live_bytes, limit);
    std::abort();
  }
  if (alignment <= alignof(std::max_align_t)) return counted(std::malloc(size));
  return counted(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
}

void* allocate_or_throw(std::size_t size, std::size_t alignment = 1) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= std::min(live_bytes, ::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// All forms, since the runtime of AddressSanitizer has its own of those that are missing here.
void* operator new(std::size_t size) {
  return allocate_or_throw(size);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

namespace tp {

AllocationLimit::AllocationLimit(std::size_t file_bytes, std::size_t times) {
  peak_live_bytes = live_bytes;
  limit_bytes = live_bytes + kConstant + times * file_bytes;
}

AllocationLimit::~AllocationLimit() {
  limit_bytes = kNoLimit;
}

std::size_t AllocationLimit::peak_bytes() {
  return peak_live_bytes;
}

}  // namespace tp
