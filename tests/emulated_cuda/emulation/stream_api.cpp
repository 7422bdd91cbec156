// The stream functions of the runtime.
#include <sched.h>

#include "capture.h"
#include "device.h"
#include "fault.h"
#include "settings.h"
#include "stream.h"

using namespace emulated_cuda;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  watch_faults();
  // A blocking stream would wait for the default stream, which is not emulated.
  if (flags != cudaStreamNonBlocking) {
    return fail(cudaErrorInvalidValue);
  }
  *stream = &create_stream(current_device());
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  destroy_stream(stream_of(stream, "cudaStreamDestroy"));
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Stream& stream = stream_of(handle, "cudaStreamSynchronize");
  if (const cudaError_t refused = refuse_if_capturing(stream)) {
    return refused;
  }
  synchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Stream& stream = stream_of(handle, "cudaStreamQuery");
  if (const cudaError_t refused = refuse_if_capturing(stream)) {
    return refused;
  }
  const auto idle = [&stream] {
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    return is_idle(stream);
  };
  if (!idle()) {
    advance(stream);
    if (settings().lazy || !idle()) {  // lazy: never done the first time somebody asks
      sched_yield();
      return cudaErrorNotReady;
    }
  }
  stream.done.acquire();
  return cudaSuccess;
}
