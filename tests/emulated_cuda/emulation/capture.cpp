#include "capture.h"

#include "device.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

// Nodes that the given ones come after, directly or not, and they themselves.
std::set<std::size_t> ancestors(const Graph& graph, std::set<std::size_t> nodes) {
  std::vector<std::size_t> open(nodes.begin(), nodes.end());
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    for (const std::size_t earlier : graph.nodes[node].after) {
      if (nodes.insert(earlier).second) {
        open.push_back(earlier);
      }
    }
  }
  return nodes;
}

// The capture that this thread has begun and not ended, if any.
thread_local std::weak_ptr<Capture> capture_of_this_thread;

}  // namespace

Capture::Member& Capture::join(Stream& stream) {
  const auto [place, is_new] = members.insert({&stream, {graph->lane_devices.size(), {}}});
  if (is_new) {
    graph->lane_devices.push_back(stream.device);
  }
  return place->second;
}

bool is_capturing(const Stream& stream) {
  return stream.capture != nullptr && stream.capture->active;
}

bool capture_work(Stream& stream, std::unique_ptr<Work>& work, cudaError_t& result) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (!is_capturing(stream)) {
    return false;
  }
  Capture& capture = *stream.capture;
  if (capture.invalid) {
    result = fail(cudaErrorStreamCaptureInvalidated);
    return true;
  }
  Capture::Member& member = capture.join(stream);
  const std::size_t number = capture.graph->nodes.size();
  capture.graph->nodes.push_back({std::move(work), member.lane, member.last});
  member.last = {number};
  result = cudaSuccess;
  return true;
}

cudaError_t refuse_if_capturing(Stream& stream) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (!is_capturing(stream)) {
    return cudaSuccess;
  }
  stream.capture->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_in_capturing_thread() {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  const std::shared_ptr<Capture> capture = capture_of_this_thread.lock();
  if (capture == nullptr || !capture->active) {
    return cudaSuccess;
  }
  capture->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& stream = stream_of(handle, "cudaStreamBeginCapture");
  if (mode != cudaStreamCaptureModeThreadLocal) {  // the one mode that suits ranks that are threads
    return fail(cudaErrorInvalidValue);
  }
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (is_capturing(stream)) {
    return fail(cudaErrorIllegalState);
  }
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->join(stream);
  capture_of_this_thread = stream.capture;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Stream& stream = stream_of(handle, "cudaStreamEndCapture");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  *graph = nullptr;
  if (!is_capturing(stream)) {
    return fail(cudaErrorIllegalState);
  }
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return fail(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->thread != std::this_thread::get_id()) {
    return fail(cudaErrorStreamCaptureWrongThread);
  }
  capture->active = false;
  for (const auto& [member, unused] : capture->members) {
    member->capture = nullptr;
  }
  if (capture->invalid) {
    return fail(cudaErrorStreamCaptureInvalidated);
  }
  if (ancestors(*capture->graph, capture->members.at(&stream).last).size() !=
      capture->graph->nodes.size()) {
    return fail(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{capture->graph};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Stream& stream = stream_of(handle, "cudaStreamIsCapturing");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  *status = !is_capturing(stream)     ? cudaStreamCaptureStatusNone
            : stream.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
