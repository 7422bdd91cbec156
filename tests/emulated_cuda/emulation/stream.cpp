#include "stream.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "capture.h"
#include "fault.h"
#include "report.h"
#include "settings.h"

namespace emulated_cuda {
namespace {

struct Streams {
  std::mutex mutex;
  std::condition_variable progress;
  std::uint64_t steps = 0;  // counts everything that happens
  int waiting = 0;
  std::set<Stream*> all;
  int visits = 0;
  std::vector<Stream*> destroyed;  // meanwhile
};

// Never destroyed: threads of ranks may outlive main.
Streams& streams() {
  static Streams* const result = new Streams;
  return *result;
}

// Held by a thread that looks at streams of others, who may destroy them: they stay until the last such
// thread has gone.
class Visit {
 public:
  Visit() {
    const Quiet quiet;
    const std::lock_guard lock(streams().mutex);
    ++streams().visits;
  }
  ~Visit() {
    const Quiet quiet;
    std::vector<Stream*> destroyed;
    {
      const std::lock_guard lock(streams().mutex);
      if (--streams().visits == 0) {
        destroyed.swap(streams().destroyed);
      }
    }
    for (Stream* const stream : destroyed) {
      delete stream;
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
};

// Runs the first piece of work in the stream's own context. The caller has set `running`.
bool run_first(Stream& stream, Work& work) {
  const Context caller = Context::current();
  stream.context.enter();
  work.enqueued().acquire();
  const bool done = work.run(stream);
  stream.done.release();
  caller.enter();
  return done;
}

enum class Step : std::uint8_t { ran, blocked, nothing };

// One piece of work, if the stream has one that can be done now.
Step step(Stream& stream, std::vector<Stream*>& needed) {
  Work* work = nullptr;
  {
    const Quiet quiet;
    const std::lock_guard lock(streams().mutex);
    if (stream.queue.empty()) {
      return Step::nothing;
    }
    if (stream.running) {
      return Step::blocked;  // another thread sees to it
    }
    stream.running = true;
    work = stream.queue.front().get();
  }
  const bool done = run_first(stream, *work);
  const Quiet quiet;
  std::unique_ptr<Work> finished;  // its destructor may be long: after the lock
  const std::lock_guard lock(streams().mutex);
  stream.running = false;
  if (done) {
    finished = std::move(stream.queue.front());
    stream.queue.pop_front();
    announce_progress();
    return Step::ran;
  }
  needed = work->waits_for();
  return Step::blocked;
}

// One piece of work of the stream, or of one that it needs, or of one that that needs. False if
// nothing could be done.
bool step_towards(Stream& stream, std::vector<Stream*>& visited) {
  if (std::find(visited.begin(), visited.end(), &stream) != visited.end()) {
    return false;
  }
  visited.push_back(&stream);
  std::vector<Stream*> needed;
  return step(stream, needed) == Step::ran ||
         std::any_of(needed.begin(), needed.end(),
                     [&visited](Stream* other) { return step_towards(*other, visited); });
}

// What every stream that is not idle waits for. With the mutex locked.
std::string describe_streams() {
  std::string result;
  int number = 0;
  for (const Stream* const stream : streams().all) {
    ++number;
    if (!stream->queue.empty()) {
      result += text("\n  a stream of device %d (%zu in its queue): ", stream->device,
                     stream->queue.size()) +
                stream->queue.front()->describe();
    }
  }
  return result.empty() ? "\n  all streams are idle: an event that is waited for was never recorded"
                        : result;
}

}  // namespace

std::mutex& stream_mutex() {
  return streams().mutex;
}

void announce_progress() {
  ++streams().steps;
  if (streams().waiting > 0) {
    streams().progress.notify_all();
  }
}

Stream& stream_of(cudaStream_t handle, const char* function) {
  watch_faults();
  const Quiet quiet;
  if (handle == nullptr) {
    report("default stream",
           text("%s: the stream is null; the emulation has no default stream", function));
  }
  const std::lock_guard lock(streams().mutex);
  if (streams().all.count(handle) == 0 || handle->destroyed) {
    report("dead handle", text("%s: the stream was destroyed, or never created", function));
  }
  return *handle;
}

Stream& create_stream(int device) {
  const Quiet quiet;
  auto* const result = new CUstream_st;
  result->device = device;
  result->context = Context::create("CUDA stream");
  const std::lock_guard lock(streams().mutex);
  streams().all.insert(result);
  return *result;
}

void destroy_stream(Stream& stream) {
  advance(stream);
  const Quiet quiet;
  {
    const std::lock_guard lock(streams().mutex);
    // If work is left, as after a lost rank, the stream stays until the end of the process.
    stream.destroyed = true;
    if (!is_idle(stream)) {
      return;
    }
    streams().all.erase(&stream);
    if (streams().visits > 0) {
      streams().destroyed.push_back(&stream);
      return;
    }
  }
  delete &stream;
}

cudaError_t enqueue(Stream& stream, std::unique_ptr<Work> work) {
  cudaError_t result = cudaSuccess;
  if (capture_work(stream, work, result)) {
    return result;
  }
  work->enqueued().release();
  {
    const Quiet quiet;
    work->accept(stream);
    const std::lock_guard lock(streams().mutex);
    stream.queue.push_back(std::move(work));
    announce_progress();  // another thread may wait for this very work
  }
  if (!settings().lazy) {
    advance(stream);
  }
  return cudaSuccess;
}

bool advance(Stream& stream) {
  const Visit visit;
  bool any = false;
  for (std::vector<Stream*> visited; step_towards(stream, visited); visited.clear()) {
    any = true;
  }
  return any;
}

void wait_until(const std::function<bool()>& is_done, Stream* stream) {
  using Clock = std::chrono::steady_clock;
  const auto patience = std::chrono::duration<double>(settings().timeout_s);
  for (;;) {
    std::uint64_t seen = 0;
    {
      const Quiet quiet;
      const std::lock_guard lock(streams().mutex);
      if (is_done()) {
        return;
      }
      seen = streams().steps;
    }
    if (stream != nullptr && advance(*stream)) {
      continue;
    }
    const Quiet quiet;
    std::unique_lock lock(streams().mutex);
    ++streams().waiting;
    const bool moved = streams().progress.wait_until(
        lock, Clock::now() + std::chrono::duration_cast<Clock::duration>(patience),
        [&] { return streams().steps != seen || is_done(); });
    --streams().waiting;
    if (!moved) {
      report("hang", text("nothing has moved for %g s; what is waited for:", settings().timeout_s) +
                         describe_streams());
    }
  }
}

bool is_idle(const Stream& stream) {
  return stream.queue.empty();
}

void synchronize(Stream& stream) {
  wait_until([&stream] { return is_idle(stream); }, &stream);
  stream.done.acquire();
}

void synchronize_device(int device) {
  const Visit visit;
  std::vector<Stream*> mine;
  {
    const Quiet quiet;
    const std::lock_guard lock(streams().mutex);
    std::copy_if(
        streams().all.begin(), streams().all.end(), std::back_inserter(mine),
        [device](const Stream* stream) { return stream->device == device && !stream->destroyed; });
  }
  for (Stream* const stream : mine) {
    synchronize(*stream);
  }
}

}  // namespace emulated_cuda
