// Shared memory of one block.
#pragma once

#include <cstddef>
#include <vector>

namespace emulated_cuda {

class BlockMemory {
 public:
  // What kernels can have: dynamic without being allowed more, dynamic if allowed, and static.
  static constexpr std::size_t kDefaultDynamicBytes = 48 << 10;
  static constexpr std::size_t kMostDynamicBytes = 227 << 10;
  static constexpr std::size_t kMostStaticBytes = 48 << 10;

  // Fresh memory for the next block, full of NaN. The last block's is gone.
  void begin_block(std::size_t dynamic_bytes);
  void end_block();

  void* dynamic() { return dynamic_; }

  // The array of a declaration, made when the first thread of the block asks for it.
  void* fixed(const void* key, std::size_t bytes, std::size_t alignment);

 private:
  struct Array {
    const void* key;
    char* memory;
    std::size_t bytes;
  };
  std::vector<Array> arrays_;
  char* dynamic_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  std::size_t fixed_bytes_ = 0;
};

}  // namespace emulated_cuda
