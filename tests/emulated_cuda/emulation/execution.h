// What this OS thread is executing on behalf of a device. Reports and the handler of memory faults
// read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emulated/call_site.h"
#include "peer_fault.h"

namespace emulated_cuda {

struct Allocation;

// Lives while one piece of work runs. Device memory is closed to the program except for what the
// running work opens.
class Execution {
 public:
  Execution(int device, const char* work, CallSite launched_at);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // The innermost one of this OS thread, or null: then the host's own code runs.
  static Execution* current();

  // Makes the allocation readable and writable until this ends. Several executions may open the
  // same one.
  void open(Allocation& allocation);

  int device() const { return device_; }
  const char* work() const { return work_; }
  CallSite launched_at() const { return launched_at_; }  // file is null for what is not a kernel
  bool is_kernel() const { return launched_at_.file != nullptr; }

  // "kernel NAME, block (x,y,z), thread (x,y,z)" and where it was launched; "" for the host.
  static std::string describe_current();

 private:
  int device_;
  const char* work_;
  CallSite launched_at_;
  Execution* outer_;
  std::vector<Allocation*> opened_;
  std::vector<std::unique_ptr<SpoiltView>> spoilt_;  // memory of a peer that delivers wrong data
};

}  // namespace emulated_cuda
