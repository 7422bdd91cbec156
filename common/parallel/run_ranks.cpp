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

// One rank, from its first to its last moment.
void run_rank(int rank,
              ThreadHub& hub,
              const Launch& launch,
              const std::function<void(RankContext&, RankOutput&)>& body,
              RankOutput& output) {
  std::unique_ptr<Communicator> comm = std::make_unique<ThreadCommunicator>(hub, rank);
  try {
    if (launch.wrap_communicator) comm = launch.wrap_communicator(std::move(comm));
    std::unique_ptr<Group> group = std::make_unique<ThreadGroup>(hub, rank);
    if (launch.wrap_group) group = launch.wrap_group(std::move(group));
    const std::unique_ptr<Device> device = make_cpu_device();
    RankContext context{rank, launch.tp_size, *device, *comm, *group};
    body(context, output);
    output.ledger = comm->ledger();
    output.memory = device->memory();
  } catch (const Aborted&) {
    // Another rank has the reason.
  } catch (const Error& e) {
    hub.abort(failure(rank, e.what(), comm->last_call()), e.kind());
  } catch (const std::exception& e) {
    hub.abort(failure(rank, e.what(), comm->last_call()));
  } catch (...) {
    hub.abort(failure(rank, "something was thrown that is no exception", comm->last_call()));
  }
  hub.leave(rank);
}

}  // namespace

Launch Launch::from(const Options& options) {
  Launch launch;
  launch.tp_size = static_cast<int>(options.tp);
  launch.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000) + 1);
  return launch;
}

void RankOutput::keep(const std::string& name, ConstTensorView tensor) {
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
  ThreadHub hub(launch.tp_size, launch.timeout);
  std::vector<RankOutput> outputs(static_cast<std::size_t>(launch.tp_size));
  std::mutex mutex;
  std::condition_variable changed;
  int running = launch.tp_size;

  std::vector<std::thread> threads;
  for (int rank = 0; rank < launch.tp_size; ++rank) {
    threads.emplace_back([&, rank] {
      run_rank(rank, hub, launch, body, outputs[static_cast<std::size_t>(rank)]);
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
