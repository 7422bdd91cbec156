#include "common/parallel/run_ranks.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "common/comm/thread_communicator.h"
#include "common/comm/thread_group.h"
#include "common/comm/thread_hub.h"
#include "common/core/error.h"
#include "common/parallel/backend.h"

namespace tp {

namespace {

constexpr std::chrono::seconds kGrace{2};

// Why a rank failed, and where it was.
std::string failure(int rank, const std::string& what, const Call& last) {
  const bool names_call = what.find("(call ") != std::string::npos;
  const std::string after =
      last.sequence == 0 ? "before any communication" : "after " + last.to_string();
  return fmt::format("rank {} failed: {}{}", rank, what, names_call ? "" : " (" + after + ")");
}

// What a rank owns. The communicator uses the device, and both the group: they end in this order.
struct Owned {
  std::unique_ptr<Group> group;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> comm;
};

void make_parts(int rank, ThreadHub& hub, const Launch& launch, Backend* backend, Owned& own) {
  own.group = std::make_unique<ThreadGroup>(hub, rank);
  own.device = backend != nullptr ? backend->make_device(rank) : make_cpu_device();
  if (backend != nullptr)
    own.comm = backend->make_communicator(*own.device, *own.group);
  else
    own.comm = std::make_unique<ThreadCommunicator>(hub, rank);
  // What is put around the group concerns the lesson's own messages, not those of the communicator.
  if (launch.wrap_group) own.group = launch.wrap_group(std::move(own.group));
  if (launch.wrap_communicator)
    own.comm = launch.wrap_communicator(std::move(own.comm), *own.device);
}

// One rank, from its first to its last moment.
void run_rank(int rank,
              ThreadHub& hub,
              const Launch& launch,
              Backend* backend,
              const std::function<void(RankContext&, RankOutput&)>& body,
              RankOutput& output) {
  Owned own;
  const auto last_call = [&] { return own.comm ? own.comm->last_call() : Call{}; };
  try {
    make_parts(rank, hub, launch, backend, own);
    RankContext context{rank, launch.tp_size, *own.device, *own.comm, *own.group};
    output.device = own.device.get();
    body(context, output);
    own.device->synchronize();
    output.ledger = own.comm->ledger();
    output.memory = own.device->memory();
  } catch (const Aborted&) {
    // Another rank has the reason.
  } catch (const Error& e) {
    hub.abort(failure(rank, e.what(), last_call()), e.kind());
  } catch (const std::exception& e) {
    hub.abort(failure(rank, e.what(), last_call()));
  } catch (...) {
    hub.abort(failure(rank, "something was thrown that is no exception", last_call()));
  }
  output.device = nullptr;
  hub.leave(rank);
}

}  // namespace

Launch Launch::from(const Options& options) {
  Launch launch;
  launch.tp_size = static_cast<int>(options.tp);
  launch.device = options.device;
  launch.comm = options.comm;
  launch.gpu_memory_utilization = options.gpu_memory_utilization;
  launch.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000) + 1);
  return launch;
}

void RankOutput::keep(const std::string& name, ConstTensorView tensor) {
  if (tensor.place != Place::host) {
    tensors[name] = device->download(tensor);
    return;
  }
  Tensor copy = Tensor::on_host(tensor.shape, tensor.dtype);
  copy_host(tensor, copy);
  tensors[name] = std::move(copy);
}

ConstTensorView RankOutput::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error(ErrorKind::rank, fmt::format("the rank left no tensor \"{}\"", name));
  return found->second;
}

std::vector<RankOutput> run_ranks(const Launch& launch,
                                  const std::function<void(RankContext&, RankOutput&)>& body) {
  const std::unique_ptr<Backend> backend =
      launch.device == "cuda" ? make_cuda_backend(launch) : nullptr;
  ThreadHub hub(launch.tp_size, launch.timeout);
  std::vector<RankOutput> outputs(static_cast<std::size_t>(launch.tp_size));
  std::mutex mutex;
  std::condition_variable changed;
  int running = launch.tp_size;

  std::vector<std::thread> threads;
  for (int rank = 0; rank < launch.tp_size; ++rank) {
    threads.emplace_back([&, rank] {
      run_rank(rank, hub, launch, backend.get(), body, outputs[static_cast<std::size_t>(rank)]);
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }

  // A stopped rank leaves at its next communication. One that computes for ever never will.
  std::unique_lock lock(mutex);
  const auto all_left = [&] { return running == 0; };
  while (!changed.wait_for(lock, std::chrono::milliseconds(50), all_left)) {
    if (!hub.aborted() || changed.wait_for(lock, kGrace, all_left)) continue;
    std::fflush(stdout);
    std::fputs(fmt::format("error: {}; {} of {} ranks did not stop\n", hub.abort_reason(), running,
                           launch.tp_size)
                   .c_str(),
               stderr);
    std::_Exit(3);
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  if (hub.aborted()) throw Error(hub.abort_kind(), hub.abort_reason());
  return outputs;
}

}  // namespace tp
