// Bugs with device memory: its ends, its life, whose it is.
#include "bug.h"
#include "bug_kernels.h"

namespace emulated_test {
namespace {

// 64 floats are 256 bytes: the guard page follows at once. 60 leave 16 bytes in between.
bool copy_with(std::size_t in_count, std::size_t out_count, int count, bool past_end) {
  const TestStream stream;
  const DeviceArray<float> in(stream, Floats(in_count, 1.0f));
  const Zeros out(stream, out_count);
  copy_elements(out.data(), in.data(), count, past_end, stream);
  return out.values() == Floats(out_count, 1.0f);
}

bool read_past_end(bool wrong) {
  return copy_with(64, wrong ? 65 : 64, 64, wrong);
}
bool read_into_padding(bool wrong) {
  return copy_with(60, wrong ? 61 : 60, 60, wrong);
}
bool write_past_end(bool wrong) {
  return copy_with(wrong ? 65 : 64, 64, 64, wrong);
}
bool write_into_padding(bool wrong) {
  return copy_with(wrong ? 61 : 60, 60, 60, wrong);
}

// copy(out, in, stream) reads memory that has been given back.
template <class Copy>
bool use_after_free_by(const Copy& copy, bool wrong) {
  const TestStream stream;
  const Zeros out(stream, 64);
  float* in = nullptr;
  check(cudaMalloc(&in, 256));
  check(cudaMemsetAsync(in, 0, 256, stream));
  if (wrong) {
    check(cudaFree(in));
  }
  copy(out.data(), in, stream);
  stream.synchronize();
  if (!wrong) {
    check(cudaFree(in));
  }
  return true;
}

bool use_after_free(bool wrong) {
  return use_after_free_by([](float* out, const float* in,
                              cudaStream_t stream) { copy_elements(out, in, 64, false, stream); },
                           wrong);
}

bool use_after_free_in_struct(bool wrong) {
  return use_after_free_by(
      [](float* out, const float* in, cudaStream_t stream) {
        copy_by_struct({out, in}, 64, stream);
      },
      wrong);
}

bool host_reads_device_memory(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 64);
  return (wrong ? data.data()[3] : data.values()[3]) == 0.0f;
}

bool host_pointer_to_kernel(bool wrong) {
  const TestStream stream;
  const Floats host(64, 1.0f);
  const DeviceArray<float> device(stream, host);
  const Zeros out(stream, 64);
  copy_elements(out.data(), wrong ? host.data() : device.data(), 64, false, stream);
  return out.values() == host;
}

bool other_devices_pointer(bool wrong) {
  const TestStream there(1);
  const Zeros in_there(there, 64);
  const TestStream stream(0);
  const Zeros in(stream, 64);
  const Zeros out(stream, 64);
  copy_elements(out.data(), wrong ? in_there.data() : in.data(), 64, false, stream);
  return out.values() == Floats(64, 0.0f);
}

bool other_devices_pointer_in_struct(bool wrong) {
  const TestStream there(1);
  const Zeros in_there(there, 64);
  const TestStream stream(0);
  const Zeros in(stream, 64);
  const Zeros out(stream, 64);
  copy_by_struct({out.data(), wrong ? in_there.data() : in.data()}, 64, stream);
  return out.values() == Floats(64, 0.0f);
}

bool null_pointer(bool wrong) {
  const TestStream stream;
  const Zeros in(stream, 64);
  const Zeros out(stream, 64);
  copy_by_struct({out.data(), wrong ? nullptr : in.data()}, 64, stream);
  return out.values() == Floats(64, 0.0f);
}

bool copy_too_long(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 60);
  const Floats host(64, 1.0f);
  check(
      cudaMemcpyAsync(data.data(), host.data(), wrong ? 256 : 240, cudaMemcpyHostToDevice, stream));
  stream.synchronize();
  return true;
}

}  // namespace

std::vector<Bug> memory_bugs() {
  return {
      {"read_past_end", read_past_end},
      {"read_into_padding", read_into_padding},
      {"write_past_end", write_past_end},
      {"write_into_padding", write_into_padding},
      {"use_after_free", use_after_free},
      {"use_after_free_in_struct", use_after_free_in_struct},
      {"host_reads_device_memory", host_reads_device_memory},
      {"host_pointer_to_kernel", host_pointer_to_kernel},
      {"other_devices_pointer", other_devices_pointer},
      {"other_devices_pointer_in_struct", other_devices_pointer_in_struct},
      {"null_pointer", null_pointer},
      {"copy_too_long", copy_too_long},
  };
}

}  // namespace emulated_test
