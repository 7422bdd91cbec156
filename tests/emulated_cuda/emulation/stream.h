// Streams: queues of work, and who runs it when.
//
// Calls only put work into a queue and never wait, as on a GPU. There is no thread for it: whoever
// calls into the library runs what can run. Eager streams run work as soon as it is there; lazy
// ones only when something waits for it, and then only what has to be done for that. Lazy is the
// adversary: a stream that nobody waits for stays behind, so what is missing an event or a
// synchronisation finds stale data every time, not once in a thousand runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime.h>

#include "block.h"
#include "sanitizers.h"
#include "work.h"

namespace emulated_cuda {
struct Capture;
}

struct CUstream_st {
  int device = 0;
  bool destroyed = false;
  bool running = false;  // a thread is running its first piece of work
  std::deque<std::unique_ptr<emulated_cuda::Work>> queue;

  // ThreadSanitizer's view: a context for the stream, those of its kernels' threads, and what it
  // has done so far.
  emulated_cuda::Context context;
  emulated_cuda::ThreadContexts thread_contexts;
  emulated_cuda::OrderPoint done;

  std::shared_ptr<emulated_cuda::Capture> capture;  // null unless it captures
};

namespace emulated_cuda {

// Guards queues, events, graphs and communicators.
std::mutex& stream_mutex();

// To be called, with the mutex locked, after something for which others may wait has happened.
void announce_progress();

// The stream of a handle. Errors: a report for one that is destroyed or null (the project uses no
// default stream).
Stream& stream_of(cudaStream_t handle, const char* function);

Stream& create_stream(int device);
void destroy_stream(Stream& stream);

// Puts work into the stream, or into the graph that it captures. Returns what the call is to
// return.
cudaError_t enqueue(Stream& stream, std::unique_ptr<Work> work);

// Runs work as far as it goes without waiting: the stream's, and what that needs of others. True if
// anything ran.
bool advance(Stream& stream);

// Returns when is_done() holds, advancing the stream (if there is one) meanwhile. is_done is called
// with the mutex locked. Errors: a report that lists what all streams wait for, if nothing moves
// for settings().timeout_s.
void wait_until(const std::function<bool()>& is_done, Stream* stream = nullptr);

// All work of the stream, or of all streams of a device, is done, and visible to the caller.
void synchronize(Stream& stream);
void synchronize_device(int device);

bool is_idle(const Stream& stream);  // with the mutex locked

}  // namespace emulated_cuda
