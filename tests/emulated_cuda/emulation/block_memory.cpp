#include "block_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulated/call_site.h"
#include "report.h"
#include "sanitizers.h"

namespace emulated_cuda {
namespace {

// From the heap, so that AddressSanitizer sees its ends and ThreadSanitizer takes each block's for
// new memory; and with room behind it for overruns that nobody sees, but that must not damage the
// emulation.
char* fresh_memory(std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t kRoom = EMULATED_ASAN ? 0 : 64;
  const std::size_t unit = std::max<std::size_t>(alignment, 16);
  const std::size_t whole = (bytes + kRoom + unit - 1) / unit * unit;
  auto* const result = static_cast<char*>(std::aligned_alloc(unit, whole));
  std::memset(result, 0xff, whole);  // NaN in every format
  poison(result + bytes, whole - bytes);
  return result;
}

void release_memory(char* memory, std::size_t bytes) {
  unpoison(memory, bytes + 64);
  std::free(memory);
}

}  // namespace

void BlockMemory::begin_block(std::size_t dynamic_bytes) {
  const Quiet quiet;
  dynamic_bytes_ = dynamic_bytes;
  dynamic_ = dynamic_bytes > 0 ? fresh_memory(dynamic_bytes, 128) : nullptr;
}

void BlockMemory::end_block() {
  const Quiet quiet;
  for (const Array& array : arrays_) {
    release_memory(array.memory, 0);
  }
  arrays_.clear();
  release_memory(dynamic_, 0);
  dynamic_ = nullptr;
  fixed_bytes_ = 0;
}

void* BlockMemory::fixed(const void* key, std::size_t bytes, std::size_t alignment) {
  for (const Array& array : arrays_) {
    if (array.key == key) {
      return array.memory;
    }
  }
  const Quiet quiet;
  fixed_bytes_ += bytes;
  if (fixed_bytes_ > kMostStaticBytes) {
    report("too much shared memory",
           text("the TP_SHARED arrays of the block take %zu bytes, a GPU gives %zu", fixed_bytes_,
                kMostStaticBytes));
  }
  arrays_.push_back({key, fresh_memory(bytes, alignment), bytes});
  return arrays_.back().memory;
}

}  // namespace emulated_cuda
