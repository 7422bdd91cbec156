// Kernels for the tests of the emulation, and helpers to call the runtime.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace emulated_test {

// Throws unless the call succeeded.
inline void check(cudaError_t result) {
  if (result != cudaSuccess) {
    throw std::runtime_error(std::string("unexpected ") + cudaGetErrorName(result));
  }
}

// An explicit stream, as the project uses them.
class TestStream {
 public:
  explicit TestStream(int device = 0) : device_(device) {
    check(cudaSetDevice(device));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }
  int device() const { return device_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_)); }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

// Elements in memory of the stream's device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const TestStream& stream, std::size_t count) : stream_(&stream), count_(count) {
    check(cudaSetDevice(stream.device()));
    check(cudaMalloc(&data_, count * sizeof(T)));
  }
  DeviceArray(const TestStream& stream, const std::vector<T>& values)
      : DeviceArray(stream, values.size()) {
    check(
        cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    check(cudaMemcpyAsync(result.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost,
                          *stream_));
    check(cudaStreamSynchronize(*stream_));
    return result;
  }

 private:
  const TestStream* stream_;
  std::size_t count_;
  T* data_ = nullptr;
};

// --- Launchers ---

// out[i] = in[i] + 1 for i < count.
void add_one(float* out, const float* in, int count, cudaStream_t stream);
// out[i] = in[n - 1 - i] for each block of n <= 256 elements, through static shared memory.
void reverse_blocks(int* out, const int* in, int blocks, int threads, cudaStream_t stream);
// out[b] = sum of the block's elements, by shuffles and dynamic shared memory.
void block_sums(float* out, const float* in, int blocks, int threads, cudaStream_t stream);
// Eight rows of 32 answers, one row per warp operation.
void warp_operations(int* out, cudaStream_t stream);
// Adds 1 to *counter in every thread, and keeps the largest thread number in *largest.
void count_threads(int* counter, int* largest, int blocks, int threads, cudaStream_t stream);
// out[i] = linear number of thread i of a three-dimensional launch.
void linear_numbers(int* out, dim3 grid, dim3 block, cudaStream_t stream);
// Threads that return before the barrier of the others.
void early_return(int* out, int staying, int threads, cudaStream_t stream);
// out[i] = i + (i + 1) + ... + (i + 7), by an array in the thread's own memory.
void local_arrays(int* out, int blocks, int threads, cudaStream_t stream);
// Uses `bytes` of dynamic shared memory after allowing them, or without.
void dynamic_shared(float* out, std::size_t bytes, bool allow, cudaStream_t stream);

}  // namespace emulated_test
