// Shared memory: TP_SHARED for arrays of a fixed size, TP_DYNAMIC_SHARED for the one whose size the
// launch gives.
#pragma once

#include <cstddef>

namespace emulated_cuda {

// The block's memory for the declaration with this key. Fresh in each block and full of NaN.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);

// The block's dynamic shared memory. Fresh in each block and full of NaN.
void* dynamic_shared();

// Declaration is the type of a lambda expression at the place of the declaration: there are no two
// alike.
template <class Array, class Declaration>
Array& shared_array(Declaration) {
  static const char key = 0;
  return *static_cast<Array*>(static_shared(&key, sizeof(Array), alignof(Array)));
}

}  // namespace emulated_cuda

#define TP_SHARED(T, name, count) T(&name)[count] = ::emulated_cuda::shared_array<T[count]>([] {})
#define TP_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::emulated_cuda::dynamic_shared())
