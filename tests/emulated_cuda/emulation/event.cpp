#include "event.h"

#include <chrono>
#include <set>

#include <sched.h>

#include "device.h"
#include "report.h"
#include "settings.h"

namespace emulated_cuda {
namespace {

std::set<CUevent_st*>& living_events() {
  static auto* const result = new std::set<CUevent_st*>;
  return *result;
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CUevent_st& event_of(cudaEvent_t handle, const char* function) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (living_events().count(handle) == 0) {
    report("dead handle", text("%s: the event was destroyed, or never created", function));
  }
  return *handle;
}

class RecordWork : public Work {
 public:
  explicit RecordWork(std::shared_ptr<EventRecord> record) : record_(std::move(record)) {}

  bool run(Stream& /*stream*/) override {
    record_->order.release();
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    record_->time_ms = now_ms();
    record_->done = true;
    return true;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<RecordWork>(record_); }
  std::string describe() const override { return "cudaEventRecord"; }

 private:
  std::shared_ptr<EventRecord> record_;
};

class WaitWork : public Work {
 public:
  explicit WaitWork(std::shared_ptr<EventRecord> record) : record_(std::move(record)) {}

  bool run(Stream& /*stream*/) override {
    {
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      if (!record_->done) {
        return false;
      }
    }
    record_->order.acquire();
    return true;
  }
  std::vector<Stream*> waits_for() const override { return {record_->stream}; }
  std::unique_ptr<Work> again() const override { return std::make_unique<WaitWork>(record_); }
  std::string describe() const override {
    return text("cudaStreamWaitEvent, for an event of a stream of device %d",
                record_->stream->device);
  }

 private:
  std::shared_ptr<EventRecord> record_;
};

std::shared_ptr<EventRecord> last_record(CUevent_st& event) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  return event.record;
}

// A mark in a stream that captures: no work, but the nodes it stands behind.
bool record_in_capture(CUevent_st& event, Stream& stream, cudaError_t& result) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (!is_capturing(stream)) {
    return false;
  }
  auto record = std::make_shared<EventRecord>();
  record->stream = &stream;
  record->capture = stream.capture;
  record->nodes = stream.capture->join(stream).last;
  event.record = std::move(record);
  result = stream.capture->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  return true;
}

// A wait that a capture is part of, on either side: an edge of the graph, no work.
bool wait_in_capture(Stream& stream, const EventRecord& record, cudaError_t& result) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (!is_capturing(stream) && record.capture == nullptr) {
    return false;
  }
  if (record.capture == nullptr) {  // a graph cannot wait for what is not in it
    stream.capture->invalid = true;
    result = fail(cudaErrorStreamCaptureIsolation);
  } else if (!record.capture->active) {
    result = fail(cudaErrorCapturedEvent);
  } else if (is_capturing(stream) && stream.capture != record.capture) {
    stream.capture->invalid = record.capture->invalid = true;
    result = fail(cudaErrorStreamCaptureMerge);
  } else {
    stream.capture = record.capture;
    stream.capture->join(stream).last.insert(record.nodes.begin(), record.nodes.end());
    result = record.capture->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  }
  return true;
}

// Nobody can wait on the host for an event inside of a graph.
cudaError_t refuse_if_captured(const EventRecord& record) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (record.capture == nullptr) {
    return cudaSuccess;
  }
  record.capture->invalid = true;
  return fail(cudaErrorCapturedEvent);
}

bool is_done(const EventRecord& record) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  return record.done;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Quiet quiet;
  auto* const created = new CUevent_st;
  created->device = current_device();
  created->timing = (flags & cudaEventDisableTiming) == 0;
  const std::lock_guard lock(stream_mutex());
  living_events().insert(created);
  *event = created;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  CUevent_st& event = event_of(handle, "cudaEventDestroy");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  living_events().erase(&event);
  delete &event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  CUevent_st& event = event_of(handle, "cudaEventRecord");
  Stream& stream = stream_of(stream_handle, "cudaEventRecord");
  if (event.device != stream.device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  cudaError_t captured = cudaSuccess;
  if (record_in_capture(event, stream, captured)) {
    return captured;
  }
  std::unique_ptr<Work> work;
  {
    const Quiet quiet;
    auto record = std::make_shared<EventRecord>();
    record->stream = &stream;
    work = std::make_unique<RecordWork>(record);
    const std::lock_guard lock(stream_mutex());
    event.record = std::move(record);
  }
  return enqueue(stream, std::move(work));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle,
                                cudaEvent_t handle,
                                unsigned /*flags*/) {
  Stream& stream = stream_of(stream_handle, "cudaStreamWaitEvent");
  const std::shared_ptr<EventRecord> record = last_record(event_of(handle, "cudaStreamWaitEvent"));
  if (record == nullptr) {  // an event that was never recorded holds nobody up
    return cudaSuccess;
  }
  cudaError_t captured = cudaSuccess;
  if (wait_in_capture(stream, *record, captured)) {
    return captured;
  }
  return enqueue(stream, std::make_unique<WaitWork>(record));
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const std::shared_ptr<EventRecord> record = last_record(event_of(handle, "cudaEventSynchronize"));
  if (record != nullptr) {
    if (const cudaError_t refused = refuse_if_captured(*record)) {
      return refused;
    }
    wait_until([&record] { return record->done; }, record->stream);
    record->order.acquire();
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::shared_ptr<EventRecord> record = last_record(event_of(handle, "cudaEventQuery"));
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  if (record == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = refuse_if_captured(*record)) {
    return refused;
  }
  if (!is_done(*record)) {
    advance(*record->stream);
    if (settings().lazy || !is_done(*record)) {  // lazy: never done the first time somebody asks
      sched_yield();
      return cudaErrorNotReady;
    }
  }
  record->order.acquire();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  const CUevent_st& first_event = event_of(first, "cudaEventElapsedTime");
  const CUevent_st& second_event = event_of(second, "cudaEventElapsedTime");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (!first_event.timing || !second_event.timing || first_event.record == nullptr ||
      second_event.record == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (first_event.record->capture != nullptr || second_event.record->capture != nullptr) {
    return fail(cudaErrorCapturedEvent);
  }
  if (!first_event.record->done || !second_event.record->done) {
    return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(second_event.record->time_ms - first_event.record->time_ms);
  return cudaSuccess;
}
