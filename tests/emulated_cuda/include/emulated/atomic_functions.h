// Atomic functions. Like CUDA's they are relaxed: they order no other memory access.
#pragma once

#include <atomic>
#include <type_traits>

namespace emulated_cuda {

// Replaces *address by change(*address) and returns what was there.
template <class T, class Change>
T atomic_change(T* address, Change change) {
  const std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace emulated_cuda

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return ::emulated_cuda::atomic_change(address,
                                        [value](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return ::emulated_cuda::atomic_change(address,
                                        [value](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return ::emulated_cuda::atomic_change(address,
                                        [value](T old) { return value < old ? value : old; });
}
